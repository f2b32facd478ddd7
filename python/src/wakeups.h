// How an event loop of Python awaits something that a thread of Cairn ends (cairn/_wakeups.py). The thread posts a number to the
// loop's eventfd and never takes the GIL; the loop reads the numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cairn::python {

// Numbers that threads of Cairn post and an event loop takes, with a descriptor that is readable while there are some.
// Thread safety: any thread may call.
class Wakeups {
 public:
  Wakeups();  // raises if the process has no descriptor left
  Wakeups(const Wakeups&) = delete;
  Wakeups& operator=(const Wakeups&) = delete;
  ~Wakeups();

  [[nodiscard]] int fd() const { return fd_; }
  void post(std::uint64_t number);
  [[nodiscard]] std::vector<std::uint64_t> take();

 private:
  const int fd_;
  std::mutex mutex_;
  std::vector<std::uint64_t> posted_;
};
using WakeupsPtr = std::shared_ptr<Wakeups>;

// cairn._cairn._Wakeups.
struct WakeupsHandle {
  WakeupsPtr wakeups = std::make_shared<Wakeups>();
};

// Those who await one thing. Thread safety: one thread at a time.
class Watchers {
 public:
  void add(WakeupsPtr wakeups, std::uint64_t number) { all_.emplace_back(std::move(wakeups), number); }
  void remove(const WakeupsPtr& wakeups, std::uint64_t number) { std::erase(all_, std::pair(wakeups, number)); }
  // Posts each number, and forgets them.
  void wake() {
    for (const auto& [wakeups, number] : all_) {
      wakeups->post(number);
    }
    all_.clear();
  }

 private:
  std::vector<std::pair<WakeupsPtr, std::uint64_t>> all_;
};

}  // namespace cairn::python
