/* SPDX-License-Identifier: MIT */
/*
 * Numbers and strings as text, quickly: printf() would be most of the cost of
 * a record.
 */
#include "trace.h"

static const char pairs[] =
	"00010203040506070809101112131415161718192021222324"
	"25262728293031323334353637383940414243444546474849"
	"50515253545556575859606162636465666768697071727374"
	"75767778798081828384858687888990919293949596979899";
static const char digits[] = "0123456789abcdef";

/* The digits of VALUE so that they end before END. Returns where they begin. */
static char *backwards(char *end, uint64_t value)
{
	while (value >= 100) {
		end -= 2;
		memcpy(end, &pairs[value % 100 * 2], 2);
		value /= 100;
	}
	if (value >= 10) {
		end -= 2;
		memcpy(end, &pairs[value * 2], 2);
	} else {
		*--end = '0' + value;
	}
	return end;
}

char *text_dec(char *p, uint64_t value)
{
	char text[20];
	char *first = backwards(text + sizeof(text), value);
	size_t len = text + sizeof(text) - first;

	memcpy(p, first, len);
	return p + len;
}

/*
 * The program may be killed between any two instructions. So a field is written
 * over by one: half of a number would be wrong, and none at all no JSON.
 */
typedef char field __attribute__((vector_size(FIELD), aligned(1), may_alias));

void text_field(char *p, const char *text, size_t len)
{
	field all;

	if (len > FIELD)
		return;
	memset(&all, ' ', FIELD);
	memcpy((char *)&all + FIELD - len, text, len);
	*(volatile field *)p = all;
}

void text_number(char *p, int64_t value)
{
	char text[20];
	char *first = backwards(text + sizeof(text),
				value < 0 ? -(uint64_t)value : (uint64_t)value);

	if (value < 0)
		*--first = '-';
	text_field(p, first, text + sizeof(text) - first);
}

char *text_hex(char *p, uint64_t value)
{
	int nibbles = value ? (67 - __builtin_clzll(value)) / 4 : 1;
	int i;

	*p++ = '0';
	*p++ = 'x';
	for (i = nibbles - 1; i >= 0; i--) {
		p[i] = digits[value & 15];
		value >>= 4;
	}
	return p + nibbles;
}

char *text_bytes(char *p, const void *data, size_t len)
{
	const unsigned char *byte = data;

	for (; len--; byte++) {
		*p++ = digits[*byte >> 4];
		*p++ = digits[*byte & 15];
	}
	return p;
}

char *text_string(char *p, const char *s, size_t max)
{
	for (; *s && max--; s++) {
		if (*s == '"' || *s == '\\') {
			*p++ = '\\';
			*p++ = *s;
		} else if ((unsigned char)*s < ' ' || *s == 127) {
			p = LIT(p, "\\u00");
			p = text_bytes(p, s, 1);
		} else {
			*p++ = *s;
		}
	}
	return p;
}
