# SPDX-License-Identifier: MIT
#
# Draws bench.svg in FOLDER out of what table.awk has left there: the ladder,
# and the ratios to perftest.

set terminal svg size 960,640 dynamic font 'sans-serif,14' background '#ffffff'
set output folder.'/bench.svg'
set multiplot

# ---- above: the ladder ------------------------------------------------------

set origin 0, 0.5
set size 1, 0.5
set lmargin 10
set rmargin 3
set title 'The ladder: messages in a second, rung by rung (64 bytes; the last 1024)'
set style data histogram
set style histogram clustered gap 1
set style fill solid 0.9 border -1
set boxwidth 0.9
set grid ytics linecolor rgb '#dddddd'
set yrange [0:*]
set xtics scale 0 font ',11'
set key top left
plot folder.'/ladder.dat' using 2:xtic(1) title 'RDMA WRITE' linecolor rgb '#3b6ea5', \
	'' using 3 title 'SEND' linecolor rgb '#e0a13c'

# ---- below: beside perftest -------------------------------------------------

set style data linespoints
set logscale x 2
set xtics scale 1 ('8 B' 8, '64 B' 64, '1 KiB' 1024, '4 KiB' 4096, '64 KiB' 65536, '1 MiB' 1048576) font ',11'
set xrange [5:1600000]
unset key
set key bottom left font ',11'
set arrow 1 from 5, 1 to 1600000, 1 nohead linecolor rgb '#888888' dashtype 2

set origin 0, 0
set size 0.5, 0.5
set yrange [0:*]
set title 'Throughput, perftest = 1 (more is better)'
plot folder.'/ratios.dat' index 'write_bw' using 1:2 title 'beside ib\_write\_bw' \
		linecolor rgb '#3b6ea5' linewidth 2 pointtype 7 pointsize 0.6, \
	'' index 'send_bw' using 1:2 title 'beside ib\_send\_bw' \
		linecolor rgb '#e0a13c' linewidth 2 pointtype 5 pointsize 0.6

set origin 0.5, 0
set size 0.5, 0.5
set key bottom right
set yrange [0:1.4]
set title 'Latency, perftest = 1 (less is better)'
plot folder.'/ratios.dat' index 'write_lat' using 1:2 title 'beside ib\_write\_lat' \
		linecolor rgb '#3b6ea5' linewidth 2 pointtype 7 pointsize 0.6, \
	'' index 'send_lat' using 1:2 title 'beside ib\_send\_lat' \
		linecolor rgb '#e0a13c' linewidth 2 pointtype 5 pointsize 0.6

unset multiplot
