// Threads that take chunks of a phase; the next phase begins when the last chunk of this one is done.
//
// Nobody waits for a thread, only for chunks that were taken. On a contended machine a thread that the system
// has put aside between two chunks costs nothing: the others take its share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace dynofarm {

// Phases of chunks. `run` is called once for each chunk, by any thread; `finish` once, by whoever was last.
class Job {
   public:
    virtual ~Job() = default;
    virtual int phases() const = 0;
    // At least 1 and at most Pool::MOST_CHUNKS.
    virtual int chunks(int phase) const = 0;
    virtual void run(int phase, int chunk) = 0;
    virtual void finish(int phase) = 0;
};

// Calls a function with data on a team of threads that somebody else keeps: libgomp's GOMP_parallel.
using TeamStart = void (*)(void (*function)(void*), void* data, unsigned threads, unsigned flags);

class Pool {
   public:
    static constexpr int MOST_THREADS = 256;
    static constexpr int MOST_CHUNKS = 60000;

    // On `threads` threads, the caller among them.
    void run(Job& job, int threads) {
        if (threads <= 1) return run_alone(job);
        grow(threads - 1);
        active_.store(threads, std::memory_order_relaxed);
        const std::uint32_t end = begin(job);
        jobs_.fetch_add(1);
        if (idle_.load() > 0) {
            std::lock_guard<std::mutex> lock(mutex_);
            begun_.notify_all();
        }
        work(end);
    }

    // The same on threads that torch keeps for its operators. Between two of those the pool's own threads would
    // share the cores with torch's, which stay awake for some milliseconds.
    void run_on_team(Job& job, int threads, TeamStart start) {
        if (threads <= 1) return run_alone(job);
        Team team{this, begin(job)};
        start(&join_team, &team, static_cast<unsigned>(threads), 0);
    }

   private:
    struct Team {
        Pool* pool;
        std::uint32_t end;
    };

    static void join_team(void* data) {
        Team& team = *static_cast<Team*>(data);
        team.pool->work(team.end);
    }

    // phase << 32 | chunks << 16 | next chunk. Taking a chunk is one addition; what it returns says of which
    // phase the chunk is and whether there was one left, so a late thread cannot mistake one for another.
    static std::uint32_t phase_of(std::uint64_t ticket) { return static_cast<std::uint32_t>(ticket >> 32); }
    static int chunks_of(std::uint64_t ticket) { return static_cast<int>((ticket >> 16) & 0xffff); }
    static int next_of(std::uint64_t ticket) { return static_cast<int>(ticket & 0xffff); }

    static void run_alone(Job& job) {
        for (int phase = 0; phase < job.phases(); ++phase) {
            const int chunks = job.chunks(phase);
            for (int chunk = 0; chunk < chunks; ++chunk) job.run(phase, chunk);
            job.finish(phase);
        }
    }

    std::uint32_t begin(Job& job) {
        job_ = &job;
        base_ = phase_of(ticket_.load(std::memory_order_relaxed)) + 1;
        const std::uint32_t end = base_ + static_cast<std::uint32_t>(job.phases());
        end_ = end;
        publish(base_, job.chunks(0));
        return end;
    }

    void publish(std::uint32_t phase, int chunks) {
        ticket_.store((std::uint64_t{phase} << 32) | (static_cast<std::uint64_t>(chunks) << 16));
        if (sleepers_.load() > 0) {
            std::lock_guard<std::mutex> lock(mutex_);
            changed_.notify_all();
        }
    }

    // Until the phase is `end`, or no job is under way.
    void work(std::uint32_t end) {
        for (;;) {
            std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
            if (phase_of(ticket) == end || chunks_of(ticket) == 0) return;
            if (next_of(ticket) < chunks_of(ticket)) ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
            if (next_of(ticket) >= chunks_of(ticket)) {
                // The job may have ended between the look and the addition: nothing would change any more.
                if (chunks_of(ticket) > 0) wait_for_change(phase_of(ticket));
                continue;
            }
            // A chunk in hand keeps its phase open: job_, base_ and end_ cannot change under it.
            const int phase = static_cast<int>(phase_of(ticket) - base_);
            job_->run(phase, next_of(ticket));
            if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == chunks_of(ticket)) {
                job_->finish(phase);
                done_.store(0, std::memory_order_relaxed);
                const std::uint32_t next = phase_of(ticket) + 1;
                publish(next, next == end_ ? 0 : job_->chunks(phase + 1));
            }
        }
    }

    void serve(int worker, std::uint32_t seen) {
        for (;;) {
            if (!spin_until([&] { return jobs_.load(std::memory_order_acquire) != seen; })) {
                std::unique_lock<std::mutex> lock(mutex_);
                idle_.fetch_add(1);
                begun_.wait(lock, [&] { return jobs_.load() != seen; });
                idle_.fetch_sub(1);
            }
            seen = jobs_.load(std::memory_order_acquire);
            if (worker < active_.load(std::memory_order_relaxed)) work(NO_PHASE);
        }
    }

    void wait_for_change(std::uint32_t seen) {
        const auto changed = [&] { return phase_of(ticket_.load()) != seen; };
        if (spin_until(changed)) return;
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_.fetch_add(1);
        changed_.wait(lock, changed);
        sleepers_.fetch_sub(1);
    }

    // First at full speed, then giving way to others; false when it did not come.
    template <class Condition>
    static bool spin_until(Condition condition) {
        for (int spin = 0; spin < SPINS; ++spin) {
            if (condition()) return true;
            pause();
        }
        for (int turn = 0; turn < YIELDS; ++turn) {
            if (condition()) return true;
            std::this_thread::yield();
        }
        return false;
    }

    void grow(int workers) {
        while (static_cast<int>(threads_.size()) < workers && static_cast<int>(threads_.size()) < MOST_THREADS - 1) {
            const int worker = static_cast<int>(threads_.size()) + 1;
            const std::uint32_t seen = jobs_.load(std::memory_order_relaxed);
            threads_.emplace_back([this, worker, seen] { serve(worker, seen); });
            threads_.back().detach();
        }
    }

    static void pause() {
#if defined(__x86_64__) || defined(__i386__)
        _mm_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    static constexpr std::uint32_t NO_PHASE = 0;
    static constexpr int SPINS = 2000;
    static constexpr int YIELDS = 8;

    alignas(64) std::atomic<std::uint64_t> ticket_{0};
    alignas(64) std::atomic<int> done_{0};
    alignas(64) std::atomic<int> sleepers_{0};
    std::atomic<int> idle_{0};
    std::atomic<int> active_{0};
    std::atomic<std::uint32_t> jobs_{0};
    Job* job_ = nullptr;
    std::uint32_t base_ = 0;
    std::uint32_t end_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::condition_variable begun_;
    std::vector<std::thread> threads_;
};

}  // namespace dynofarm
