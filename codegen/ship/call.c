/* The call of a compiled program: checks what it is given, places the memories, runs the steps, alone or with workers.

   Before this text stand the program's own tables: TW_ARGUMENTS, TW_RESULTS, tw_arguments, tw_results, TW_MEMORIES,
   TW_MOST_BUFFERS, tw_steps, tw_slots, tw_given, tw_made, tw_fixed, tw_places, tw_copies, TW_ARENA, TW_SCRATCH, TW_PARALLEL.
   A run keeps all that it changes in the caller's workspace and on the stack. */

#ifdef _WIN32
#include <malloc.h>
#define TW_ALIGNED(bytes) _aligned_malloc(bytes, TW_LINE)
#define TW_FREE_ALIGNED _aligned_free
#else
#define TW_ALIGNED(bytes) tw_aligned(bytes)
#define TW_FREE_ALIGNED free
#endif
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TW_LINE 64
#define TW_LINES(bytes) (((size_t)(bytes) + TW_LINE - 1) / TW_LINE * TW_LINE)
#define TW_ZONES 64
#define TW_SPIN_NANOSECONDS 50000  /* waking a sleeper takes some 20 microseconds */
#define TW_ASK_NANOSECONDS 50000000
#define TW_TABLES TW_LINES(2 * (TW_MEMORIES + 1) * sizeof(void *))

#ifndef _WIN32
static void *tw_aligned(size_t bytes) {
    void *memory = NULL;
    return posix_memalign(&memory, TW_LINE, bytes) ? NULL : memory;
}
#endif

static int64_t tw_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void tw_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ------------------------------------------------------------ the end of a run that somebody stops */

typedef struct {
    const TW(call) *call;
    int64_t asked;
    int stopped;
} tw_run;

static _Thread_local tw_run *tw_running;  /* the run that this thread is in the middle of */

static int tw_ask(tw_run *run) {
    if (!run || !run->call->stop) return 0;
    if (!run->stopped) {
        int64_t now = tw_clock();
        if (now - run->asked < TW_ASK_NANOSECONDS) return 0;
        run->asked = now;
        run->stopped = run->call->stop(run->call->stop_context) != 0;
    }
    return run->stopped;
}

/* Loops inside kernels whose end nobody knows ask now and then. */
TW_INTERRUPTED_LINKAGE int32_t tilewright_interrupted(void) { return tw_ask(tw_running); }

/* ------------------------------------------------------------ workers */

typedef struct {
    _Alignas(TW_LINE) atomic_llong next;  /* how many of the zone's tasks are taken (a long is 32 bits on Windows) */
} tw_zone;

typedef struct {
    TW(threads) *pool;
    long number;
    pthread_t thread;
} tw_worker;

struct TW(threads) {
    _Alignas(TW_LINE) atomic_long phase;  /* odd: a step is open */
    _Alignas(TW_LINE) atomic_long active;  /* workers that are in it */
    _Alignas(TW_LINE) atomic_long sleepers;
    atomic_int owned, ends;
    const tw_step *step;
    void **buffers;
    char *scratch;
    long limit;
    tw_zone zones[TW_ZONES];
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int count;
    tw_worker *workers;
};

/* A thread takes half of what is left of its own zone at a time, then pieces of the others'. */
static void tw_take(TW(threads) *pool, long number, char *scratch) {
    const tw_step *step = pool->step;
    long zones = pool->limit < TW_ZONES ? pool->limit : TW_ZONES, zone = number % TW_ZONES % zones;
    int64_t share = 2;
    for (long turn = 0; turn < zones; ++turn) {
        int64_t lower = step->tasks * zone / zones, upper = step->tasks * (zone + 1) / zones;
        int64_t first = lower + atomic_load(&pool->zones[zone].next);
        while (first < upper) {
            int64_t size = (upper - first) / share;
            if (size < step->chunk) size = step->chunk;
            first = lower + atomic_fetch_add(&pool->zones[zone].next, size);
            if (first < upper) {
                int64_t end = first + size < upper ? first + size : upper;
                step->entry(first, end, pool->buffers, scratch);
                first += size;
            }
        }
        share = 2 * zones;
        zone = zone + 1 == zones ? 0 : zone + 1;
    }
}

static void tw_sleep(TW(threads) *pool, long phase) {
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(&pool->phase) == phase && !atomic_load(&pool->ends)) pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_add(&pool->sleepers, -1);
    pthread_mutex_unlock(&pool->lock);
}

static void tw_rouse(TW(threads) *pool) {
    if (atomic_load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void *tw_work(void *given) {
    tw_worker *own = given;
    TW(threads) *pool = own->pool;
    long last = 0;
    int64_t since = tw_clock();
    for (unsigned turn = 0; !atomic_load(&pool->ends); ++turn) {
        long phase = atomic_load(&pool->phase);
        if (phase == last || (phase & 1) == 0) {
            if ((turn & 63) == 0 && tw_clock() - since > TW_SPIN_NANOSECONDS) {
                tw_sleep(pool, phase);
                since = tw_clock();
            } else {
                tw_pause();
            }
            continue;
        }
        /* The step cannot end without a worker that is counted while it is still open. */
        atomic_fetch_add(&pool->active, 1);
        if (atomic_load(&pool->phase) == phase && own->number < pool->limit)
            tw_take(pool, own->number, pool->scratch + own->number * TW_SCRATCH);
        atomic_fetch_add(&pool->active, -1);
        last = phase;
        since = tw_clock();
    }
    return NULL;
}

static void tw_share(TW(threads) *pool, const tw_step *step, void **buffers, char *scratch) {
    pool->step = step;
    pool->buffers = buffers;
    pool->scratch = scratch;
    pool->limit = pool->count + 1;
    for (long zone = 0; zone < TW_ZONES; ++zone) atomic_store(&pool->zones[zone].next, 0);
    atomic_fetch_add(&pool->phase, 1);
    tw_rouse(pool);
    tw_take(pool, 0, scratch);
    atomic_fetch_add(&pool->phase, 1);
    for (long turn = 0; atomic_load(&pool->active) > 0; ++turn) {
        if (turn > 2000) sched_yield();
        else tw_pause();
    }
}

TW_API TW(threads) *TW(threads_start)(int threads) {
    void *memory = threads < 1 ? NULL : TW_ALIGNED(sizeof(TW(threads)));
    if (!memory) return NULL;
    TW(threads) *pool = memset(memory, 0, sizeof(TW(threads)));
    pool->workers = calloc((size_t)threads, sizeof(tw_worker));
    if (!pool->workers || pthread_mutex_init(&pool->lock, NULL)) {
        free(pool->workers);
        TW_FREE_ALIGNED(pool);
        return NULL;
    }
    if (pthread_cond_init(&pool->wake, NULL)) {
        pthread_mutex_destroy(&pool->lock);
        free(pool->workers);
        TW_FREE_ALIGNED(pool);
        return NULL;
    }
    while (pool->count < threads - 1) {  /* fewer where the system refuses */
        tw_worker *worker = &pool->workers[pool->count];
        worker->pool = pool;
        worker->number = pool->count + 1;
        if (pthread_create(&worker->thread, NULL, tw_work, worker)) break;
        pool->count++;
    }
    return pool;
}

TW_API int TW(threads_count)(const TW(threads) *pool) { return pool ? pool->count + 1 : 1; }

TW_API void TW(threads_stop)(TW(threads) *pool) {
    if (!pool) return;
    atomic_store(&pool->ends, 1);
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int k = 0; k < pool->count; ++k) pthread_join(pool->workers[k].thread, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool->workers);
    TW_FREE_ALIGNED(pool);
}

/* ------------------------------------------------------------ the run */

static int tw_checked(const void *const *given, const TW(tensor) *tensors, int count) {
    if (count && !given) return TW_ERROR_NULL;
    for (int k = 0; k < count; ++k) {
        if (!tensors[k].size_bytes) continue;
        if (!given[k]) return TW_ERROR_NULL;
        if ((uintptr_t)given[k] % tensors[k].alignment) return TW_ERROR_ALIGNMENT;
    }
    return TW_DONE;
}

TW_API size_t TW(workspace_bytes)(int threads) {
    return TW_TABLES + TW_LINES(TW_ARENA) + (size_t)(TW_PARALLEL && threads > 1 ? threads : 1) * TW_SCRATCH;
}

static void tw_place(const TW(call) *call, char **at, char *arena) {
    for (int k = 0; k < TW_ARGUMENTS; ++k)
        if (tw_given[k] >= 0) at[tw_given[k]] = (char *)(uintptr_t)call->arguments[k];
    for (int k = 0; k < TW_FIXED; ++k)
        at[tw_fixed[k].slot] = (char *)(uintptr_t)(call->constants ? call->constants[tw_fixed[k].at] : tw_constant(tw_fixed[k].at));
    for (int k = 0; k < TW_PLACES; ++k) at[tw_places[k].slot] = arena + tw_places[k].at;
    for (int k = 0; k < TW_COPIES; ++k) {
        if ((uintptr_t)at[tw_copies[k].slot] % TW_LINE == 0) continue;
        memcpy(arena + tw_copies[k].at, at[tw_copies[k].slot], (size_t)tw_copies[k].bytes);
        at[tw_copies[k].slot] = arena + tw_copies[k].at;
    }
    for (int k = 0; k < TW_RESULTS; ++k) {
        if (tw_made[k].how == TW_DIRECT) at[tw_made[k].from] = call->results[k];
        else if (tw_made[k].how == TW_KEPT && tw_results[k].size_bytes)
            memcpy(call->results[k], at[tw_made[k].from], tw_results[k].size_bytes);
        else if (tw_made[k].how == TW_LITERAL && tw_results[k].size_bytes)
            memcpy(call->results[k], call->constants ? call->constants[tw_made[k].from] : tw_constant(tw_made[k].from),
                   tw_results[k].size_bytes);
    }
    memcpy(at + TW_MEMORIES, at, TW_MEMORIES * sizeof(char *));  /* where each was at first */
}

static int tw_go(tw_run *run, char **at, char *scratch, TW(threads) *pool) {
    void *buffers[TW_MOST_BUFFERS + 1];
    unsigned turns = 0;
    for (int32_t number = 0; number < TW_STEPS;) {
        const tw_step *step = &tw_steps[number];
        if ((++turns & 31) == 0 && tw_ask(run)) return TW_STOPPED;
        for (int32_t k = 0; k < step->count; ++k) {
            int32_t slot = tw_slots[step->buffers + k];
            buffers[k] = at[slot >= 0 ? slot : TW_MEMORIES + ~slot];
        }
        ++number;
        switch (step->kind) {
        case TW_KERNEL: {
            int64_t began = run->call->step_nanoseconds ? tw_clock() : 0;
            if (!pool || step->tasks <= step->chunk) step->entry(0, step->tasks, buffers, scratch);
            else tw_share(pool, step, buffers, scratch);
            if (run->call->step_nanoseconds) run->call->step_nanoseconds[number - 1] += tw_clock() - began;
            if (step->is_long && tw_ask(run)) return TW_STOPPED;
            break;
        }
        case TW_COPY:
            if (buffers[0] != buffers[1] && step->first) memmove(buffers[1], buffers[0], (size_t)step->first);
            break;
        case TW_EXCHANGE: {
            int32_t a = tw_slots[step->buffers], b = tw_slots[step->buffers + 1];
            char *kept = at[a];
            at[a] = at[b];
            at[b] = kept;
            break;
        }
        case TW_JUMP: number = (int32_t)step->first; break;
        case TW_UNLESS:
            if (*(const unsigned char *)buffers[0] == 0) number = (int32_t)step->first;
            break;
        default: {  /* TW_SELECT */
            int32_t branch;
            memcpy(&branch, buffers[0], sizeof branch);
            number += branch < 0 || branch >= step->first ? (int32_t)step->first - 1 : branch;
        }
        }
    }
    return TW_DONE;
}

TW_API int TW(run_call)(const TW(call) *call) {
    if (!call) return TW_ERROR_NULL;
    int code = tw_checked(call->arguments, tw_arguments, TW_ARGUMENTS);
    if (code == TW_DONE) code = tw_checked((const void *const *)call->results, tw_results, TW_RESULTS);
    if (code != TW_DONE) return code;
    if (!call->workspace || (uintptr_t)call->workspace % TW_LINE
        || call->workspace_bytes < TW(workspace_bytes)(TW(threads_count)(call->threads)))
        return TW_ERROR_WORKSPACE;
    TW(threads) *pool = TW_PARALLEL && call->threads && call->threads->count ? call->threads : NULL;
    if (pool && atomic_exchange(&pool->owned, 1)) pool = NULL;  /* another run has the workers: this one goes alone */
    char **at = call->workspace, *arena = (char *)call->workspace + TW_TABLES;
    tw_run run = {call, tw_clock(), 0}, *before = tw_running;
    tw_running = &run;
    tw_place(call, at, arena);
    code = tw_go(&run, at, arena + TW_LINES(TW_ARENA), pool);
    tw_running = before;
    if (pool) atomic_store(&pool->owned, 0);
    if (code != TW_DONE || run.stopped) return TW_STOPPED;
    for (int k = 0; k < TW_RESULTS; ++k)
        if (tw_made[k].how == TW_AGAIN && tw_results[k].size_bytes)
            memcpy(call->results[k], call->results[tw_made[k].from], tw_results[k].size_bytes);
    return TW_DONE;
}

TW_API int TW(run)(const void *const *arguments, void *const *results, void *workspace, size_t workspace_bytes,
                   TW(threads) *threads) {
    TW(call) call = {arguments, results, NULL, workspace, workspace_bytes, threads, NULL, NULL, NULL};
    return TW(run_call)(&call);
}

TW_API const char *TW(message)(int code) {
    switch (code) {
    case TW_DONE: return "done";
    case TW_ERROR_NULL: return "an argument, a result or the workspace is missing (a null pointer)";
    case TW_ERROR_ALIGNMENT: return "an argument or a result is not aligned as its tensor says";
    case TW_ERROR_WORKSPACE: return "the workspace is missing, too small for the threads, or not aligned to 64 bytes";
    case TW_STOPPED: return "the caller's stop function ended the run; the results are not complete";
    default: return "no code of this library";
    }
}

TW_API const TW(tensor) *TW(arguments)(int *count) {
    if (count) *count = TW_ARGUMENTS;
    return tw_arguments;
}

TW_API const TW(tensor) *TW(results)(int *count) {
    if (count) *count = TW_RESULTS;
    return tw_results;
}

TW_API const char *TW(interface)(void) { return tw_interface; }

#ifdef TW_FOR_PYTHON

/* Whether a signal's handler has raised: its functions are Python's, given by address, since C programs have no Python. */
typedef struct {
    int (*ensure)(void);
    int (*check)(void);
    void (*fetch)(void **type, void **value, void **traceback);
    void (*release)(int state);
    void *raised[3];
} tw_stops;

TW_API int TW(stop_for_python)(void *given);
TW_API int TW(stop_for_python)(void *given) {
    tw_stops *own = given;
    int state = own->ensure(), raised = own->check();
    if (raised) own->fetch(&own->raised[0], &own->raised[1], &own->raised[2]);
    own->release(state);
    return raised;
}
#endif
