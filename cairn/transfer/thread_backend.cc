#include "cairn/transfer/thread_backend.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cairn/base/check.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

std::int32_t carry_out(const IoRequest& request, int descriptor) {
  const auto offset = static_cast<off_t>(request.offset);
  ssize_t result = 0;
  switch (request.operation) {
    case IoOperation::kRead:
      result = pread(descriptor, request.memory, request.bytes, offset);
      break;
    case IoOperation::kWrite:
      result = pwrite(descriptor, request.memory, request.bytes, offset);
      break;
    case IoOperation::kSync:
      result = fdatasync(descriptor);
      break;
  }
  return result < 0 ? -errno : static_cast<std::int32_t>(result);
}

}  // namespace

ThreadBackend::ThreadBackend(std::uint32_t depth, std::string why) : depth_(depth), why_(std::move(why)) {
  threads_.reserve(depth);
  try {
    for (std::uint32_t i = 0; i < depth; ++i) {
      threads_.push_back(start_own_thread("cairn-io", [this] { run(); }));
    }
  } catch (...) {
    stop();  // those that were started
    throw;
  }
}

ThreadBackend::~ThreadBackend() {
  std::vector<IoResult> ignored;
  while (in_flight_ > 0) {
    reap(ignored, Duration::max());
  }
  stop();
}

void ThreadBackend::stop() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  called_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

std::uint32_t ThreadBackend::add_file(int descriptor) {
  const auto free = std::ranges::find(files_, kNone);
  const auto file = static_cast<std::uint32_t>(free - files_.begin());
  if (free == files_.end()) {
    files_.emplace_back();
  }
  files_[file] = descriptor;
  return file;
}

void ThreadBackend::queue(const IoRequest& request) {
  CAIRN_CHECK(in_flight_ < depth_, "more requests than the depth of the backend");
  ++in_flight_;
  queued_.push_back({.request = request, .descriptor = files_[request.file]});
}

void ThreadBackend::reap(std::vector<IoResult>& out, Duration wait) {
  const std::size_t before = out.size();
  {
    const MutexLock lock(mutex_);
    for (const Call& call : queued_) {
      calls_.push_back(call);
      called_.notify_one();
    }
    queued_.clear();
    const auto something = [this]() CAIRN_REQUIRES(mutex_) { return woken_ || !results_.empty(); };
    if (wait == Duration::max()) {
      returned_.wait(mutex_, something);
    } else {
      returned_.wait_for(mutex_, wait, something);
    }
    woken_ = false;
    out.insert(out.end(), results_.begin(), results_.end());
    results_.clear();
  }
  in_flight_ -= static_cast<std::uint32_t>(out.size() - before);
}

void ThreadBackend::wake() {
  const MutexLock lock(mutex_);
  woken_ = true;
  returned_.notify_one();
}

void ThreadBackend::run() {
  mutex_.lock();
  for (;;) {
    called_.wait(mutex_, [this]() CAIRN_REQUIRES(mutex_) { return closed_ || !calls_.empty(); });
    if (calls_.empty()) {
      break;
    }
    const Call call = calls_.front();
    calls_.pop_front();
    mutex_.unlock();
    const IoResult result = {.token = call.request.token, .result = carry_out(call.request, call.descriptor)};
    mutex_.lock();
    results_.push_back(result);
    returned_.notify_one();
  }
  mutex_.unlock();
}

std::string ThreadBackend::describe() const {
  return str_cat("pread and pwrite on ", depth_, " threads", why_.empty() ? "" : ": ", why_);
}

}  // namespace cairn
