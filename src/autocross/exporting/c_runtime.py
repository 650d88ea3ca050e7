"""The part of a C export that is the same for every model: how texts, numbers and moments become codes. All functions are `static
inline`, so that a compiler does not complain about those that a model does not need."""

from __future__ import annotations

RUNTIME = r"""
typedef struct { const char *text; uint32_t length; int32_t code; } autocross_text;

/* The texts of a field in a hash table; a slot has 1 plus the place of its text. Unknown texts share n_buckets codes behind those
   of the n_known texts, if there are buckets. Those of a column of numbers are compared as numbers are written. */
typedef struct {
    const autocross_text *texts;
    const uint32_t *slots;
    uint32_t mask, longest, n_known, n_buckets;
    int digits;
} autocross_texts;

typedef struct { int64_t key; double weight; } autocross_weight;

static inline uint32_t autocross_fnv(const char *text, size_t length) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash ^ hash >> 15;
}

/* The code of a text that is known, or -1. */
static inline int32_t autocross_find(const autocross_texts *in, const char *text, size_t length) {
    if (length > in->longest) return -1;
    for (uint32_t at = autocross_fnv(text, length);; at++) {
        uint32_t slot = in->slots[at & in->mask];
        if (slot == 0) return -1;
        const autocross_text *one = &in->texts[slot - 1];
        if (one->length == length && memcmp(one->text, text, length) == 0) return one->code;
    }
}

static inline uint64_t autocross_left(uint64_t x, int by) { return x << by | x >> (64 - by); }

static inline uint64_t autocross_read(const unsigned char *data, int n) {
    uint64_t value = 0;
    for (int i = 0; i < n; i++) value |= (uint64_t)data[i] << (8 * i);
    return value;
}

/* XXH64 with seed 0. */
static inline uint64_t autocross_hash(const char *text, size_t length) {
    const uint64_t p1 = 0x9E3779B185EBCA87u, p2 = 0xC2B2AE3D27D4EB4Fu, p3 = 0x165667B19E3779F9u, p4 = 0x85EBCA77C2B2AE63u,
                   p5 = 0x27D4EB2F165667C5u;
    const unsigned char *data = (const unsigned char *)text, *end = data + length;
    uint64_t hash = p5;
    if (length >= 32) {
        uint64_t lanes[4] = {p1 + p2, p2, 0, 0 - p1};
        for (; end - data >= 32; data += 32)
            for (int i = 0; i < 4; i++) lanes[i] = autocross_left(lanes[i] + autocross_read(data + 8 * i, 8) * p2, 31) * p1;
        hash = autocross_left(lanes[0], 1) + autocross_left(lanes[1], 7) + autocross_left(lanes[2], 12);
        hash += autocross_left(lanes[3], 18);
        for (int i = 0; i < 4; i++) hash = (hash ^ autocross_left(lanes[i] * p2, 31) * p1) * p1 + p4;
    }
    hash += (uint64_t)length;
    for (; end - data >= 8; data += 8)
        hash = autocross_left(hash ^ autocross_left(autocross_read(data, 8) * p2, 31) * p1, 27) * p1 + p4;
    if (end - data >= 4) {
        hash = autocross_left(hash ^ autocross_read(data, 4) * p1, 23) * p2 + p3;
        data += 4;
    }
    for (; data < end; data++) hash = autocross_left(hash ^ *data * p5, 11) * p1;
    hash = (hash ^ hash >> 33) * p2;
    hash = (hash ^ hash >> 29) * p3;
    return hash ^ hash >> 32;
}

/* The code of a text, known or not. */
static inline int32_t autocross_code(const autocross_texts *in, const char *text, size_t length) {
    int32_t code = autocross_find(in, text, length);
    if (code >= 0) return code;
    return in->n_buckets ? (int32_t)(2 + in->n_known + autocross_hash(text, length) % in->n_buckets) : 1;
}

/* How many bytes of white space a text begins with, or ends with. */
static inline size_t autocross_blank(const char *text, size_t length, int at_end) {
    for (size_t i = 0; i < sizeof autocross_blanks / sizeof *autocross_blanks; i++) {
        size_t n = strlen(autocross_blanks[i]);
        if (n <= length && memcmp(at_end ? text + length - n : text, autocross_blanks[i], n) == 0) return n;
    }
    return 0;
}

/* Whether a text spells a number other than a whole one: digits with a point or an exponent, inf, infinity or nan. */
static inline int autocross_spells(const char *text, size_t length) {
    static const char *const words[] = {"inf", "infinity", "nan"};
    size_t i = length && (*text == '+' || *text == '-'), first, digits = 0;
    for (size_t word = 0; word < 3; word++) {
        size_t j = 0;
        while (i + j < length && words[word][j] && (text[i + j] | 32) == words[word][j]) j++;
        if (i + j == length && words[word][j] == 0) return 1;
    }
    for (; i < length && text[i] >= '0' && text[i] <= '9'; i++) digits++;
    if (i < length && text[i] == '.')
        for (i++; i < length && text[i] >= '0' && text[i] <= '9'; i++) digits++;
    if (digits == 0) return 0;
    if (i < length && (text[i] | 32) == 'e') {
        i++;
        if (i < length && (text[i] == '+' || text[i] == '-')) i++;
        for (first = i; i < length && text[i] >= '0' && text[i] <= '9';) i++;
        if (i == first) return 0;
    }
    return i == length;
}

/* The code of a text in a column that held numbers: a text that spells a number is written as the number is. */
static inline int32_t autocross_number_code(const autocross_texts *in, const char *text, size_t length) {
    char written[400];
    const char *bare = text;
    size_t n = length, blank, i, zeros;
    int32_t code = autocross_find(in, text, length);
    if (code >= 0) return code;
    while ((blank = autocross_blank(bare, n, 0)) != 0) bare += blank, n -= blank;
    while ((blank = autocross_blank(bare, n, 1)) != 0) n -= blank;
    for (i = 0; i < sizeof autocross_missing / sizeof *autocross_missing; i++)
        if (strlen(autocross_missing[i]) == n && memcmp(autocross_missing[i], bare, n) == 0) return 0;
    i = *bare == '+' || *bare == '-';
    for (zeros = i; zeros + 1 < n && bare[zeros] == '0';) zeros++;
    for (blank = i; blank < n && bare[blank] >= '0' && bare[blank] <= '9';) blank++;
    if (n > i && blank == n) {
        int negative = *bare == '-' && !(n - zeros == 1 && bare[zeros] == '0');
        if (!negative) return autocross_code(in, bare + zeros, n - zeros);
        if (zeros == 1) return autocross_code(in, bare, n);
        if (n - zeros >= sizeof written - 1) return 1;
        written[0] = '-';
        memcpy(written + 1, bare + zeros, n - zeros);
        return autocross_code(in, written, n - zeros + 1);
    }
    if (!autocross_spells(bare, n)) return autocross_code(in, text, length);
    double number = strtod(bare, NULL);
    if (isnan(number)) return 0;
    if (isinf(number) || number == 0) {
        strcpy(written, number == 0 ? "0" : number > 0 ? "inf" : "-inf");
    } else if (number == floor(number)) {
        snprintf(written, sizeof written, "%.0f", number);
    } else {
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(written, sizeof written, "%.*g", digits, number);
            if (strtod(written, NULL) == number) break;
        }
    }
    return autocross_code(in, written, strlen(written));
}

static inline int32_t autocross_text_code(const autocross_texts *in, const char *text) {
    if (text == NULL) return 0;
    return in->digits ? autocross_number_code(in, text, strlen(text)) : autocross_code(in, text, strlen(text));
}

/* How many edges are not above a number, which is not NAN. */
static inline size_t autocross_bin(const double *edges, size_t n, double number) {
    const double *first = edges;
    while (n > 0) {
        size_t half = n / 2;
        if (first[half] <= number) first += half + 1, n -= half + 1;
        else n = half;
    }
    return (size_t)(first - edges);
}

/* The code of a part of the calendar among those that were seen. */
static inline int32_t autocross_part(const int32_t *numbers, size_t n, int64_t number) {
    for (size_t first = 0, last = n; first < last;) {
        size_t half = first + (last - first) / 2;
        if (numbers[half] == number) return (int32_t)(2 + half);
        if (numbers[half] < number) first = half + 1;
        else last = half;
    }
    return 1;
}

typedef struct { int64_t micros, year, quarter, month, day, weekday, hour, minute; } autocross_moment;

/* The calendar of a moment in seconds since 1970; 0 if there is none. Years are those of Python's calendar, 1 to 9999. */
static inline int autocross_calendar(double seconds, autocross_moment *moment) {
    if (!(seconds >= -62135596800.0 && seconds < 253402300800.0)) return 0;
    double whole = floor(seconds);
    moment->micros = (int64_t)whole * 1000000 + (int64_t)floor((seconds - whole) * 1e6 + 0.5);
    int64_t days = moment->micros / 86400000000;
    if (moment->micros % 86400000000 < 0) days--;
    int64_t minutes = (moment->micros - days * 86400000000) / 60000000;
    /* Days are counted from the first of March of the year 0, in periods of 400 years. */
    int64_t from_march = days + 719468, period = from_march / 146097, day = from_march % 146097;
    int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    int64_t of_year = day - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    moment->day = of_year - (153 * month + 2) / 5 + 1;
    moment->month = month < 10 ? month + 3 : month - 9;
    moment->year = year + period * 400 + (moment->month <= 2);
    moment->quarter = (moment->month + 2) / 3;
    moment->weekday = (days % 7 + 10) % 7;
    moment->hour = minutes / 60;
    moment->minute = minutes % 60;
    return 1;
}

/* The weight of a key that is known, or that of all others. */
static inline double autocross_look_up(const autocross_weight *slots, int shift, int64_t key, double other) {
    uint64_t at = (uint64_t)key * 0x9E3779B97F4A7C15u >> shift, mask = (UINT64_MAX >> shift);
    for (;; at = (at + 1) & mask) {
        if (slots[at].key == key) return slots[at].weight;
        if (slots[at].key < 0) return other;
    }
}

#define AUTOCROSS_ENTRIES 64 /* combinations of lists that count in a cross */

/* The codes of a list, each once, in ascending order. A set of bits says which there are; the first are returned for crosses. */
static inline double autocross_list(
    const autocross_texts *in, const double *weights, uint64_t *bits, size_t n_words, const char *const *texts, size_t count,
    int32_t *codes, size_t *n_codes
) {
    double total = 0.0;
    *n_codes = 0;
    if (texts == NULL) {
        codes[(*n_codes)++] = 0;
        return weights[0];
    }
    memset(bits, 0, n_words * sizeof *bits);
    for (size_t i = 0; i < count; i++) {
        int32_t code = autocross_text_code(in, texts[i]);
        if (code) bits[code / 64] |= (uint64_t)1 << code % 64;
    }
    for (size_t word = 0; word < n_words; word++)
        for (int bit = 0; bits[word] >> bit; bit++) {
            if (bits[word] >> bit & 1) {
                int32_t code = (int32_t)(64 * word) + bit;
                total += weights[code];
                if (*n_codes < AUTOCROSS_ENTRIES) codes[(*n_codes)++] = code;
            }
            if (bit == 63) break;
        }
    return total;
}
"""
