/* Every kernel as the plain loop a C programmer would write. CODE is the type of the codes; arguments as in autocross.kernels, sizes last. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CODES const CODE *restrict codes
#define RAGGED CODES, const int64_t *restrict starts
#define ROWS const uint8_t *restrict label, const float *restrict weight, const uint8_t *restrict fold
#define ODDS const double *restrict odds
#define SUMS const int64_t *restrict sums
#define TIED const uint8_t *restrict tied

void count(CODES, const uint8_t *restrict fold, int64_t *restrict counts, int64_t n_rows, int64_t n_models) {
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t k = 0; k < n_models; k++)
            if (k != fold[row]) counts[codes[row] * n_models + k]++;
}

void count_ragged(RAGGED, const uint8_t *restrict fold, int64_t *restrict counts, int64_t n_rows, int64_t n_models) {
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t at = starts[row]; at < starts[row + 1]; at++)
            for (int64_t k = 0; k < n_models; k++)
                if (k != fold[row]) counts[codes[at] * n_models + k]++;
}

void tally(
    CODES, const uint32_t *restrict bucket, const uint8_t *restrict fold, const uint8_t *restrict label, int64_t n_buckets,
    int64_t *restrict counts, int64_t n_rows, int64_t n_columns
) {
    for (int64_t row = 0; row < n_rows; row++) {
        int64_t *own = counts + codes[row] * n_columns * 2;
        own[2 * bucket[row]]++;
        own[2 * bucket[row] + 1] += label[row];
        if (fold[row] < n_columns - n_buckets) {
            own[2 * (n_buckets + fold[row])]++;
            own[2 * (n_buckets + fold[row]) + 1] += label[row];
        }
    }
}

static inline int64_t n_below(const double *restrict edges, int64_t n_edges, double value) {
    int64_t low = 0, high = n_edges;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (edges[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void cut(
    CODES, const uint32_t *restrict column, const int64_t *restrict counts, const double *restrict odds_edges,
    const double *restrict row_edges, double up, double down, int64_t first, uint8_t *restrict cuts, int64_t n_rows, int64_t n_columns,
    int64_t n_odds, int64_t n_row_edges
) {
    for (int64_t row = 0; row < n_rows; row++) {
        const int64_t *own = counts + (codes[row] * n_columns + column[row]) * 2;
        cuts[row] = first + n_below(odds_edges, n_odds, (own[1] + up) / (own[0] - own[1] + down));
        cuts[n_rows + row] = first + n_below(row_edges, n_row_edges, own[0]);
    }
}

void before(int64_t *restrict counts, int64_t n_codes, int64_t n_buckets) {
    for (int64_t code = 0; code < n_codes; code++) {
        int64_t rows = 0, positives = 0;
        for (int64_t bucket = 0; bucket < n_buckets; bucket++) {
            int64_t *own = counts + (code * n_buckets + bucket) * 2, mine = own[0], up = own[1];
            own[0] = rows, own[1] = positives;
            rows += mine, positives += up;
        }
    }
}

void scale_judged(
    CODES, const CODE *restrict judged, const uint8_t *restrict fold, const double *restrict factor, double *restrict odds,
    int64_t n_rows, int64_t n_models
) {
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t k = 0; k < n_models; k++) odds[row * n_models + k] *= factor[(k == fold[row] ? judged : codes)[row] * n_models + k];
}

static inline void add_row(int64_t *restrict sums, const double *restrict odds, double scaled, double y, int64_t fold, int64_t n_models) {
    for (int64_t k = 0; k < n_models; k++) {
        if (k == fold) continue;
        double q = 1.0 / (1.0 + odds[k]), p = odds[k] * q;
        sums[2 * k] += (int64_t)(scaled * (p - y));
        sums[2 * k + 1] += (int64_t)(scaled * (p * q));
    }
}

void gather(CODES, ROWS, ODDS, double unit, int64_t *restrict sums, int64_t n_rows, int64_t n_models) {
    for (int64_t row = 0; row < n_rows; row++)
        add_row(sums + codes[row] * n_models * 2, odds + row * n_models, weight[row] * unit, label[row], fold[row], n_models);
}

void gather_ragged(RAGGED, ROWS, ODDS, double unit, int64_t *restrict sums, int64_t n_rows, int64_t n_models) {
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t at = starts[row]; at < starts[row + 1]; at++)
            add_row(sums + codes[at] * n_models * 2, odds + row * n_models, weight[row] * unit, label[row], fold[row], n_models);
}

static inline void add_and_count_row(
    int64_t *restrict sums, const double *restrict odds, double scaled, double y, int64_t fold, int64_t n_models
) {
    for (int64_t k = 0; k < n_models; k++) {
        if (k == fold) continue;
        double q = 1.0 / (1.0 + odds[k]), p = odds[k] * q;
        sums[3 * k] += (int64_t)(scaled * (p - y));
        sums[3 * k + 1] += (int64_t)(scaled * (p * q));
        sums[3 * k + 2]++;
    }
}

void gather_counted(CODES, ROWS, ODDS, double unit, int64_t *restrict sums, int64_t n_rows, int64_t n_models) {
    for (int64_t row = 0; row < n_rows; row++)
        add_and_count_row(sums + codes[row] * n_models * 3, odds + row * n_models, weight[row] * unit, label[row], fold[row], n_models);
}

void gather_counted_ragged(RAGGED, ROWS, ODDS, double unit, int64_t *restrict sums, int64_t n_rows, int64_t n_models) {
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t at = starts[row]; at < starts[row + 1]; at++)
            add_and_count_row(sums + codes[at] * n_models * 3, odds + row * n_models, weight[row] * unit, label[row], fold[row], n_models);
}

void scale(CODES, const double *restrict factor, double *restrict odds, int64_t n_rows, int64_t n_models) {
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t k = 0; k < n_models; k++) odds[row * n_models + k] *= factor[codes[row] * n_models + k];
}

void scale_ragged(RAGGED, const double *restrict factor, double *restrict odds, int64_t n_rows, int64_t n_models) {
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t at = starts[row]; at < starts[row + 1]; at++)
            for (int64_t k = 0; k < n_models; k++) odds[row * n_models + k] *= factor[codes[at] * n_models + k];
}

/* The logarithm is the C library's where time is taken, and that of kernels/logistic.py where results are compared to the bit. */
#ifdef OWN_LOG
static inline double ln(double x) {
    int64_t bits, n;
    double z;
    memcpy(&bits, &x, sizeof x);
    n = (bits - 0x3FE6A09E00000000) >> 52;
    bits -= n << 52;
    memcpy(&z, &bits, sizeof z);
    double s = (z - 1.0) / (z + 1.0), q = s * s, tail = 1.0 / 19;
    for (int odd = 17; odd >= 3; odd -= 2) tail = tail * q + 1.0 / odd;
    return n * 0.6931471805599453 + (2.0 * s + 2.0 * s * (tail * q));
}
#else
static inline double ln(double x) { return log(x); }
#endif

static inline double row_loss(double odds, int y) { return ln(1.0 + (y ? 1.0 / odds : odds)); }

void try_scales(
    CODES, ROWS, ODDS, const double *restrict factors, double unit, int64_t *restrict losses,
    int64_t n_rows, int64_t n_models, int64_t n_tries
) {
    for (int64_t row = 0; row < n_rows; row++) {
        int64_t k = fold[row];
        if (k >= n_models) continue;
        const double *factor = factors + (codes[row] * n_models + k) * n_tries;
        double scaled = weight[row] * unit, o = odds[row * n_models + k];
        for (int64_t t = 0; t < n_tries; t++) losses[t] += (int64_t)(scaled * row_loss(o * factor[t], label[row]));
    }
}

void try_scales_ragged(
    RAGGED, ROWS, ODDS, const double *restrict factors, double unit, int64_t *restrict losses,
    int64_t n_rows, int64_t n_models, int64_t n_tries
) {
    for (int64_t row = 0; row < n_rows; row++) {
        int64_t k = fold[row];
        if (k >= n_models) continue;
        double scaled = weight[row] * unit;
        for (int64_t t = 0; t < n_tries; t++) {
            double o = odds[row * n_models + k];
            for (int64_t at = starts[row]; at < starts[row + 1]; at++) o *= factors[(codes[at] * n_models + k) * n_tries + t];
            losses[t] += (int64_t)(scaled * row_loss(o, label[row]));
        }
    }
}

void total_loss(ROWS, ODDS, double unit, int64_t *restrict losses, int64_t n_rows, int64_t n_models) {
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t k = 0; k < n_models; k++)
            losses[2 * k + (k == fold[row])] += (int64_t)(weight[row] * unit * row_loss(odds[row * n_models + k], label[row]));
}

void row_losses(const uint8_t *restrict label, ODDS, double *restrict losses, int64_t n_rows) {
    for (int64_t row = 0; row < n_rows; row++) losses[row] = row_loss(odds[row], label[row]);
}

void tie(int64_t *restrict sums, TIED, int64_t n_codes, int64_t n_models, int64_t n_parts) {
    for (int64_t code = 2; code < n_codes; code++)
        for (int64_t k = 0; k < n_models; k++)
            if (tied[code * n_models + k])
                for (int part = 0; part < 2; part++) sums[(n_models + k) * n_parts + part] += sums[(code * n_models + k) * n_parts + part];
}

void first_steps(
    SUMS, double unit, TIED, const double *restrict penalties, int64_t width, double *restrict factors,
    int64_t n_codes, int64_t n_models, int64_t n_parts, int64_t n_tries
) {
    for (int64_t code = 0; code < n_codes; code++)
        for (int64_t k = 0; k < n_models; k++) {
            int64_t at = code * n_models + k;
            if (tied[at]) {
                for (int64_t t = 0; t < n_tries; t++) factors[at * n_tries + t] = factors[(n_models + k) * n_tries + t];
                continue;
            }
            double g = sums[at * n_parts] / unit, h = sums[at * n_parts + 1] / unit;
            for (int64_t t = 0; t < n_tries; t++) {
                double pull = fabs(g) - penalties[2 * t], factor = 1.0;
                if (pull > 0.0) {
                    double ratio = 1.0 + pull / (h + penalties[2 * t + 1] / width);
                    factor = g < 0.0 ? ratio : 1.0 / ratio;
                    if (width != 1) factor = pow(factor, 1.0 / width);
                }
                factors[at * n_tries + t] = factor;
            }
        }
}

static inline double best_move(double g, double h, double l1, double w) {
    if (h <= 0.0) return 0.0;
    double up = g + l1, u = copysign(ln(1.0 + fabs(up) / h), -up);
    if (l1 == 0.0 || w + u > 0.0) return u;
    double down = g - l1;
    u = copysign(ln(1.0 + fabs(down) / h), -down);
    return w + u < 0.0 ? u : -w;
}

static inline double within_reach(double w) { return w < -50.0 ? -50.0 : w > 50.0 ? 50.0 : w; }

void centre(double *restrict weight, TIED, double unit, double *restrict mean, int64_t n_codes, int64_t n_models) {
    for (int64_t k = 0; k < n_models; k++) {
        int64_t total = 0, n = 0;
        for (int64_t code = 0; code < n_codes; code++)
            if (!tied[code * n_models + k]) {
                total += (int64_t)rint(weight[code * n_models + k] * unit);
                n++;
            }
        mean[k] = (double)total / n / unit;
        for (int64_t code = 0; code < n_codes; code++) weight[code * n_models + k] -= mean[k];
    }
}

double step(
    SUMS, double unit, const double *restrict weight, TIED, double l1, double l2, int64_t width, double *restrict delta,
    int64_t n_codes, int64_t n_models
) {
    int64_t promised = 0;
    for (int64_t code = 0; code < n_codes; code++)
        for (int64_t k = 0; k < n_models; k++) {
            int64_t at = code * n_models + k;
            if (tied[at]) {
                delta[at] = delta[n_models + k];
                continue;
            }
            double w = weight[at], g = sums[2 * at] / unit + l2 * w;
            double move = best_move(g, sums[2 * at + 1] / unit + l2 / width, l1, width * w) / width;
            move = within_reach(w + move) - w;
            delta[at] = move;
            promised += (int64_t)(fabs(g * move) * (unit / 1024));
        }
    return promised / (unit / 1024);
}

static double solve_chain(int64_t m, const double *restrict slope, double *restrict bend, const double *restrict hold, double *restrict move) {
    move[0] = -slope[0];
    for (int64_t i = 1; i < m; i++) {
        double ratio = hold[i] / bend[i - 1];
        bend[i] -= hold[i] * ratio;
        move[i] = -slope[i] + ratio * move[i - 1];
    }
    double largest = fabs(move[m - 1] /= bend[m - 1]);
    for (int64_t i = m - 2; i >= 0; i--) {
        move[i] = (move[i] + hold[i + 1] * move[i + 1]) / bend[i];
        largest = fmax(largest, fabs(move[i]));
    }
    return largest;
}

double chained_step(
    SUMS, double unit, const double *restrict weight, TIED, const int64_t *restrict order, const double *restrict gap,
    const double *restrict place, double l2, double smooth, double slope_of_line, double *restrict delta, int64_t n, int64_t n_models
) {
    (void)place, (void)slope_of_line;  // only small tables have a line
    int64_t *code = malloc(n * sizeof *code), promised = 0;
    double *hold = malloc(4 * n * sizeof *hold), *slope = hold + n, *bend = slope + n, *move = bend + n;
    for (int64_t k = 0; k < n_models; k++) {
        for (int64_t at = 0; at < n;) {
            int64_t m = 0;
            double distance = 0.0;
            do {
                distance += gap[at];
                if (!tied[order[at] * n_models + k]) {
                    code[m] = order[at] * n_models + k;
                    hold[m] = m > 0 ? smooth / distance : 0.0;
                    m++;
                    distance = 0.0;
                }
            } while (++at < n && gap[at] > 0.0);
            if (m == 0) continue;
            for (int64_t i = 0; i < m; i++) {
                double w = weight[code[i]];
                slope[i] = sums[2 * code[i]] / unit + l2 * w;
                bend[i] = sums[2 * code[i] + 1] / unit + l2;
                if (i == 0) continue;
                double pull = hold[i] * (w - weight[code[i - 1]]);
                slope[i] += pull;
                slope[i - 1] -= pull;
                bend[i] += hold[i];
                bend[i - 1] += hold[i];
            }
            double largest = solve_chain(m, slope, bend, hold, move);
            double shorter = largest > 0.0 ? log1p(largest) / largest : 0.0;
            for (int64_t i = 0; i < m; i++) {
                double w = weight[code[i]], change = within_reach(w + move[i] * shorter) - w;
                delta[code[i]] = change;
                promised -= (int64_t)(slope[i] * change * (unit / 1024));
            }
        }
        for (int64_t at = 0; at < n; at++)
            if (tied[order[at] * n_models + k]) delta[order[at] * n_models + k] = delta[n_models + k];
    }
    free(code);
    free(hold);
    return promised / (unit / 1024);
}

static inline uint64_t slot_of(uint64_t hash, const uint64_t *restrict keys, const int32_t *restrict number, uint64_t last) {
    uint64_t slot = hash & last;
    while (number[slot] >= 0 && keys[slot] != hash) slot = (slot + 1) & last;
    return slot;
}

void enter(
    const uint64_t *restrict hashes, int64_t row, uint64_t *restrict keys, int32_t *restrict number, int64_t n_before, int64_t n,
    int64_t *restrict counts, int64_t *restrict first, int32_t *restrict index, int64_t n_rows, int64_t n_slots
) {
    for (; row < n_rows && 2 * n < n_slots; row++) {
        uint64_t slot = slot_of(hashes[row], keys, number, n_slots - 1);
        if (number[slot] < 0) {
            keys[slot] = hashes[row];
            number[slot] = n;
            first[n++ - n_before] = row;
        }
        index[row] = number[slot];
        counts[number[slot]]++;
    }
}

void find(
    const uint64_t *restrict hashes, const uint64_t *restrict keys, const int32_t *restrict number, const uint32_t *restrict table,
    uint32_t *restrict found, int64_t n_rows, int64_t n_slots, int64_t n_table
) {
    for (int64_t row = 0; row < n_rows; row++) {
        int32_t own = number[slot_of(hashes[row], keys, number, n_slots - 1)];
        found[row] = table[own >= 0 ? own : n_table - 1];
    }
}

void spread(const uint32_t *restrict table, const int32_t *restrict index, uint32_t *restrict found, int64_t n_rows) {
    for (int64_t row = 0; row < n_rows; row++) found[row] = table[(uint32_t)index[row]];
}

void locate(
    const double *restrict values, const int64_t *restrict bits, const int64_t *restrict edges, const uint32_t *restrict start,
    int64_t shift, int64_t levels, uint16_t *restrict place, int64_t n_rows, int64_t n_padded
) {
    int64_t n = n_padded - (1 << levels), low = edges[0], high = edges[n - 1];
    for (int64_t row = 0; row < n_rows; row++) {
        int64_t x = bits[row] ^ ((bits[row] >> 63) & INT64_MAX), near = x < low ? low : x > high ? high : x;
        uint64_t at = start[((uint64_t)near - (uint64_t)low) >> shift];
        for (uint64_t half = (1 << levels) / 2; half > 0; half >>= 1) at += half * (edges[at + half - 1] <= x);
        place[row] = values[row] == values[row] ? at : (uint64_t)n + 1;
    }
}

void lay_out(
    const int64_t *restrict keys, int64_t hashed, int64_t n_seen, uint32_t *restrict slots, int64_t *restrict counts,
    int64_t n_entries, int64_t n_slots
) {
    for (int64_t at = 0; at < n_entries; at++) {
        slots[at] = hashed ? keys[at] % n_slots : keys[at];
        if (at < n_seen) counts[slots[at]]++;
    }
}

void number(const uint8_t *restrict bits, int64_t first, int64_t others, uint32_t *restrict code, int64_t n_slots) {
    for (int64_t slot = 0; slot < n_slots; slot++)
        code[slot] = bits[slot / 8] >> (7 - slot % 8) & 1 ? first++ : others;
}
