/* What the queueing kernels are measured against: the same algorithms on the same random streams, in C.
 *
 * Every function runs a whole experiment in one loop and returns a sum that the compiled Python must reproduce.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BITS 9 /* buckets an octave of the histogram: 2^BITS */
#define LOWEST_EXPONENT (1023 - 30)
#define BUCKETS (2 + (70 << BITS))

typedef struct { uint64_t s[4]; } rng;

static inline uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

static inline uint64_t next(rng *r) {
    uint64_t *s = r->s, result = rotl(s[0] + s[3], 23) + s[0], shifted = s[1] << 17;
    s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= shifted; s[3] = rotl(s[3], 45);
    return result;
}

static inline int64_t below(rng *r, uint64_t n) {
    uint64_t product = (next(r) >> 32) * n;
    if ((uint32_t)product < n) {
        uint64_t threshold = (0x100000000u - n) % n;
        while ((uint32_t)product < threshold) product = (next(r) >> 32) * n;
    }
    return (int64_t)(product >> 32);
}

static inline double exponential(rng *r) { return -log(1.0 - (double)(next(r) >> 11) * 0x1p-53); }

static rng take(const uint64_t *state) { rng r; memcpy(r.s, state, sizeof r.s); return r; }

static inline void record(int64_t *counts, double response) {
    int64_t bits, index;
    memcpy(&bits, &response, 8);
    index = (bits >> (52 - BITS)) - ((int64_t)LOWEST_EXPONENT << BITS) + 1;
    index = index < 0 ? 0 : index > BUCKETS - 1 ? BUCKETS - 1 : index;
    counts[index]++;
}

/* Balls into bins: the fullest bin. */

static int64_t fullest(const int32_t *bins, int64_t m) {
    int64_t most = 0;
    for (int64_t j = 0; j < m; j++) if (bins[j] > most) most = bins[j];
    return most;
}

int64_t one_choice(const uint64_t *routing, int64_t m, int64_t n) {
    rng r = take(routing);
    int32_t *bins = calloc(m, sizeof *bins);
    for (int64_t i = 0; i < n; i++) bins[below(&r, m)]++;
    int64_t most = fullest(bins, m);
    free(bins);
    return most;
}

int64_t two_choices(const uint64_t *routing, int64_t m, int64_t n) {
    rng r = take(routing);
    int32_t *bins = calloc(m, sizeof *bins);
    for (int64_t i = 0; i < n; i++) {
        int64_t a = below(&r, m), b = below(&r, m);
        int32_t in_a = bins[a], in_b = bins[b];
        int64_t least = a ^ ((a ^ b) & -(int64_t)(in_b < in_a)); /* no branch: half of them would be missed */
        bins[least]++;
    }
    int64_t most = fullest(bins, m);
    free(bins);
    return most;
}

/* FCFS servers, Poisson arrivals, exponential sizes of mean 1: the sum of response times, counted in a histogram. */

double random_dispatch(const uint64_t *arrivals, const uint64_t *sizes, const uint64_t *routing, int64_t servers,
                       int64_t n, double mean_gap, int64_t *counts) {
    rng a = take(arrivals), z = take(sizes), r = take(routing);
    double *free_at = calloc(servers, sizeof *free_at), t = 0.0, sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        t += exponential(&a) * mean_gap;
        double service = exponential(&z);
        int64_t j = below(&r, servers);
        double start = free_at[j] > t ? free_at[j] : t;
        free_at[j] = start + service;
        double response = (start - t) + service;
        sum += response;
        record(counts, response);
    }
    free(free_at);
    return sum;
}

double least_work(const uint64_t *arrivals, const uint64_t *sizes, int64_t servers, int64_t n, double mean_gap,
                  int64_t *counts) {
    rng a = take(arrivals), z = take(sizes);
    int64_t leaves = 2;
    while (leaves < servers) leaves *= 2;
    double *key = malloc(2 * leaves * sizeof *key), t = 0.0, sum = 0.0;
    int64_t *who = malloc(2 * leaves * sizeof *who);
    for (int64_t j = 0; j < leaves; j++) key[leaves + j] = j < servers ? 0.0 : INFINITY, who[leaves + j] = j;
    for (int64_t k = leaves - 1; k > 0; k--) {
        int64_t w = key[2 * k] <= key[2 * k + 1] ? 2 * k : 2 * k + 1;
        key[k] = key[w]; who[k] = who[w];
    }
    for (int64_t i = 0; i < n; i++) {
        t += exponential(&a) * mean_gap;
        double service = exponential(&z), start = key[1] > t ? key[1] : t, best = start + service;
        int64_t j = who[1], node = leaves + j;
        key[node] = best;
        while (node > 1) {
            int64_t rival = node ^ 1;
            int beaten = (key[rival] < best) | ((key[rival] == best) & (rival < node));
            best = beaten ? key[rival] : best;
            j = beaten ? who[rival] : j;
            node >>= 1;
            key[node] = best; who[node] = j;
        }
        double response = (start - t) + service;
        sum += response;
        record(counts, response);
    }
    free(key); free(who);
    return sum;
}

/* A calendar of departures: slots of sorted lists of nodes. */

typedef struct { double *due; int64_t *host, *link, *slots, spare, cursor, mask; double inverse_width; } calendar;

static calendar open_calendar(int64_t servers, double rate, int64_t nodes) {
    int64_t fine = 8 * servers <= 1 << 17, least = (fine ? 8 : 2) * servers, slots = 16;
    while (slots < least) slots *= 2;
    calendar c = {malloc(nodes * 8), malloc(nodes * 8), malloc(nodes * 8), malloc(slots * 8), 0, 0, slots - 1,
                  rate * (fine ? 2.0 : 1.0)};
    for (int64_t k = 0; k < nodes; k++) c.link[k] = k + 1 < nodes ? k + 1 : -1;
    for (int64_t k = 0; k < slots; k++) c.slots[k] = -1;
    return c;
}

static void close_calendar(calendar *c) { free(c->due); free(c->host); free(c->link); free(c->slots); }

static inline void enter(calendar *c, int64_t host, double time) {
    int64_t node = c->spare, at = (int64_t)(time * c->inverse_width) & c->mask, before = c->slots[at];
    c->spare = c->link[node];
    c->due[node] = time; c->host[node] = host;
    if (before < 0 || c->due[before] > time) { c->link[node] = before; c->slots[at] = node; return; }
    int64_t after = c->link[before];
    while (after >= 0 && c->due[after] <= time) { before = after; after = c->link[before]; }
    c->link[node] = after; c->link[before] = node;
}

/* Runs the statements given with `j` set to the server, for every departure up to time t, in order. */
#define DEPARTURES(c, t, ...)                                                                                    \
    for (int64_t now = (int64_t)((t) * (c).inverse_width); (c).cursor <= now; (c).cursor++) {                     \
        int64_t node = (c).slots[(c).cursor & (c).mask];                                                          \
        while (node >= 0 && (c).due[node] <= (t) && (int64_t)((c).due[node] * (c).inverse_width) <= (c).cursor) { \
            int64_t j = (c).host[node], following = (c).link[node];                                               \
            __VA_ARGS__;                                                                                          \
            (c).link[node] = (c).spare; (c).spare = node; node = following;                                       \
        }                                                                                                         \
        (c).slots[(c).cursor & (c).mask] = node;                                                                  \
    }                                                                                                             \
    (c).cursor--

double shortest_of_two(const uint64_t *arrivals, const uint64_t *sizes, const uint64_t *routing, int64_t servers,
                       int64_t n, double mean_gap, int64_t nodes, int64_t *counts) {
    rng a = take(arrivals), z = take(sizes), r = take(routing);
    calendar c = open_calendar(servers, 1.0 / mean_gap, nodes);
    double *free_at = calloc(servers, sizeof *free_at), t = 0.0, sum = 0.0;
    int64_t *count = calloc(servers, sizeof *count);
    for (int64_t i = 0; i < n; i++) {
        t += exponential(&a) * mean_gap;
        double service = exponential(&z);
        DEPARTURES(c, t, count[j]--);
        int64_t x = below(&r, servers), y = below(&r, servers), j = x ^ ((x ^ y) & -(int64_t)(count[y] < count[x]));
        count[j]++;
        double start = free_at[j] > t ? free_at[j] : t;
        free_at[j] = start + service;
        enter(&c, j, start + service);
        double response = (start - t) + service;
        sum += response;
        record(counts, response);
    }
    free(free_at); free(count); close_calendar(&c);
    return sum;
}

double shortest_queue(const uint64_t *arrivals, const uint64_t *sizes, const uint64_t *routing, int64_t servers,
                      int64_t n, double mean_gap, int64_t nodes, int64_t *counts) {
    rng a = take(arrivals), z = take(sizes), r = take(routing);
    calendar c = open_calendar(servers, 1.0 / mean_gap, nodes);
    double *free_at = calloc(servers, sizeof *free_at), t = 0.0, sum = 0.0;
    int64_t *count = calloc(servers, sizeof *count), *order = malloc(servers * 8), *place = malloc(servers * 8);
    int64_t *first = malloc((nodes + 2) * 8), low = 0;
    for (int64_t j = 0; j < servers; j++) order[j] = place[j] = j;
    for (int64_t k = 0; k < nodes + 2; k++) first[k] = k ? servers : 0;
    for (int64_t i = 0; i < n; i++) {
        t += exponential(&a) * mean_gap;
        double service = exponential(&z);
        DEPARTURES(c, t, {
            int64_t k = count[j], head = first[k], other = order[head], hole = place[j];
            order[hole] = other; place[other] = hole; order[head] = j; place[j] = head;
            first[k] = head + 1; count[j] = k - 1;
            low = k - 1 < low ? k - 1 : low;
        });
        int64_t j = order[below(&r, first[low + 1])], k = count[j], last = first[k + 1] - 1;
        int64_t other = order[last], hole = place[j];
        order[hole] = other; place[other] = hole; order[last] = j; place[j] = last;
        first[k + 1] = last; count[j] = k + 1;
        if (first[low + 1] == 0) low++;
        double start = free_at[j] > t ? free_at[j] : t;
        free_at[j] = start + service;
        enter(&c, j, start + service);
        double response = (start - t) + service;
        sum += response;
        record(counts, response);
    }
    free(free_at); free(count); free(order); free(place); free(first); close_calendar(&c);
    return sum;
}
