/* SPDX-License-Identifier: MIT */
/*
 * What the harnesses share. Each includes the source of a lesson's program, whose
 * main() becomes lesson_main(), and calls the functions in it that look at what
 * came from the other side.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <rdma_common.h>

#define main lesson_main

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * The next LENGTH bytes of the input into OUT, and zeros when there are fewer.
 * The rest of the input is left in DATA and SIZE.
 */
static inline void fuzz_take(const uint8_t **data, size_t *size, void *out,
			     size_t length)
{
	size_t n = *size < length ? *size : length;

	memset(out, 0, length);
	memcpy(out, *data, n);
	*data += n;
	*size -= n;
}

/*
 * The next bytes of the input, LENGTH at most, change what is in OUT: zeros leave
 * it as it is. So most inputs are near to what is right.
 */
static inline void fuzz_change(const uint8_t **data, size_t *size, void *out,
			       size_t length)
{
	uint8_t *bytes = out;

	for (; length > 0 && *size > 0; length--, (*size)--)
		*bytes++ ^= *(*data)++;
}

#if LESSON > 3
/* What is left of the input as private data; padded with zeros, as by the CM. */
static inline void fuzz_private_data(struct endpoint *ep, const uint8_t *data,
				     size_t size)
{
	uint8_t padded = 0;

	fuzz_take(&data, &size, &padded, 1);
	ep->private_data_len = size;
	if (ep->private_data_len > sizeof(ep->private_data))
		ep->private_data_len = sizeof(ep->private_data);
	memcpy(ep->private_data, data, ep->private_data_len);
	if (padded & 1)
		ep->private_data_len = 196;
}
#endif

#endif
