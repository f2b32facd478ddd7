#include "cairn/memory/parallel_chunks.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/base/own_thread.h"

namespace cairn {

namespace {

// With fewer threads than this, memory bandwidth already limits how fast pages are cleared.
constexpr unsigned kMostThreads = 32;

unsigned usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    return static_cast<unsigned>(CPU_COUNT(&set));
  }
  return std::thread::hardware_concurrency();
}

class ChunkRun {
 public:
  ChunkRun(const ChunkedWork& whole, const std::function<Status(std::uint64_t, std::uint64_t)>& work)
      : whole_(whole), work_(work) {}

  // Takes chunks until none is left or one fails. Calls after(bytes) for each.
  template <typename After>
  Status take_chunks(const After& after) {
    // Relaxed: the counter hands out numbers; what the chunks wrote is ordered by joining the threads.
    while (!stop_.load(std::memory_order_relaxed)) {
      const std::uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= chunks()) {
        break;
      }
      const std::uint64_t offset = index * whole_.chunk;
      const std::uint64_t bytes = std::min(whole_.chunk, whole_.bytes - offset);
      if (Status status = work_(offset, bytes); !status) {
        stop_.store(true, std::memory_order_relaxed);
        return status;
      }
      after(bytes);
    }
    return {};
  }

  Status alone() {
    std::uint64_t done = 0;
    return take_chunks([&](std::uint64_t bytes) {
      done += bytes;
      tell(done);
    });
  }

  Status with_threads(unsigned count) {
    std::vector<Status> outcomes(count);
    std::vector<std::thread> threads;
    threads.reserve(count);
    for (unsigned i = 0; i < count; ++i) {
      working_.fetch_add(1, std::memory_order_relaxed);
      try {
        threads.push_back(start_own_thread("cairn-memory", [this, &outcome = outcomes[i]] {
          outcome = take_chunks([this](std::uint64_t bytes) {
            done_.fetch_add(bytes, std::memory_order_relaxed);
            wake();
          });
          working_.fetch_sub(1, std::memory_order_relaxed);
          wake();
        }));
      } catch (const std::exception&) {
        // The system has no more threads. The threads that were started do the work, or else this one.
        working_.fetch_sub(1, std::memory_order_relaxed);
        break;
      }
    }
    if (threads.empty()) {
      return alone();
    }
    tell_until_done();
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (Status& outcome : outcomes) {
      if (!outcome) {
        return std::move(outcome);
      }
    }
    return {};
  }

  [[nodiscard]] std::uint64_t chunks() const { return (whole_.bytes + whole_.chunk - 1) / whole_.chunk; }

 private:
  void tell(std::uint64_t done) const {
    if (whole_.progress) {
      whole_.progress(done, whole_.bytes);
    }
  }

  void tell_until_done() const {
    std::uint64_t told = 0;
    for (bool last = false; !last;) {
      // Acquire, and read before the counters: a step after this load changes `steps_`, and the wait below returns at once.
      const std::uint32_t seen = steps_.load(std::memory_order_acquire);
      last = working_.load(std::memory_order_relaxed) == 0;
      if (const std::uint64_t done = done_.load(std::memory_order_relaxed); done > told) {
        told = done;
        tell(done);
      }
      if (!last) {
        steps_.wait(seen, std::memory_order_acquire);
      }
    }
  }

  void wake() {
    steps_.fetch_add(1, std::memory_order_release);  // publishes the counters changed before it
    steps_.notify_one();
  }

  const ChunkedWork& whole_;
  const std::function<Status(std::uint64_t, std::uint64_t)>& work_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<unsigned> working_{0};
  std::atomic<std::uint32_t> steps_{0};  // chunks and threads that ended; the caller waits on it
};

}  // namespace

Status for_each_chunk(const ChunkedWork& whole, const std::function<Status(std::uint64_t, std::uint64_t)>& work) {
  CAIRN_CHECK(whole.chunk > 0, "chunks have bytes");
  ChunkRun run(whole, work);
  const unsigned wanted = whole.threads > 0 ? whole.threads : std::min(usable_processors(), kMostThreads);
  const auto count = static_cast<unsigned>(std::min<std::uint64_t>(wanted, run.chunks()));
  return count <= 1 ? run.alone() : run.with_threads(count);
}

}  // namespace cairn
