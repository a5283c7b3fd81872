// Many short jobs on more threads than cores: every chunk is run once, and every run returns.
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "pool.hpp"

namespace {

class CountingJob : public dynofarm::Job {
   public:
    explicit CountingJob(int chunks) : chunks_(chunks) {}
    int phases() const override { return 3; }
    int chunks(int) const override { return chunks_; }
    void run(int, int) override { ran_.fetch_add(1, std::memory_order_relaxed); }
    void finish(int) override { finished_.fetch_add(1, std::memory_order_relaxed); }
    long ran() const { return ran_.load(); }
    long finished() const { return finished_.load(); }

   private:
    int chunks_;
    std::atomic<long> ran_{0};
    std::atomic<long> finished_{0};
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const int jobs = std::atoi(argv[1]);
    const int threads = std::atoi(argv[2]);
    static dynofarm::Pool pool;
    for (int number = 0; number < jobs; ++number) {
        CountingJob job(1 + number % 3);
        pool.run(job, threads);
        if (job.ran() != 3L * (1 + number % 3) || job.finished() != 3) {
            std::printf("job %d: %ld chunks, %ld phases\n", number, job.ran(), job.finished());
            return 1;
        }
    }
    std::_Exit(0);  // the pool's threads never end
}
