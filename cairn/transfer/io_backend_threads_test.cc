#include "cairn/transfer/io_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <thread>

#include "cairn/transfer/file_testing.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::random_bytes;
using testing::TestFile;

std::unique_ptr<IoBackend> make(IoMethod method, std::uint32_t depth) {
  Result<std::unique_ptr<IoBackend>> made = make_io_backend(method, depth);
  EXPECT_TRUE(made) << made.error().to_string();
  return made ? *std::move(made) : nullptr;
}

bool has_uring() { return make_io_backend(IoMethod::kUring, 1).has_value(); }

// Everything that was queued, by token.
std::map<std::uint64_t, std::int32_t> collect(IoBackend& backend, std::size_t count) {
  std::vector<IoResult> results;
  while (results.size() < count) {
    backend.reap(results, Duration::max());
  }
  std::map<std::uint64_t, std::int32_t> by_token;
  for (const IoResult& result : results) {
    EXPECT_TRUE(by_token.emplace(result.token, result.result).second) << "two results of request " << result.token;
  }
  EXPECT_EQ(by_token.size(), count);
  return by_token;
}

class IoBackendTest : public ::testing::TestWithParam<IoMethod> {
 protected:
  void SetUp() override {
    if (GetParam() == IoMethod::kUring && !has_uring()) {
      GTEST_SKIP() << make_io_backend(IoMethod::kUring, 1).error().message;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Methods, IoBackendTest, ::testing::Values(IoMethod::kUring, IoMethod::kThreads),
                         [](const auto& test) { return test.param == IoMethod::kUring ? "Uring" : "Threads"; });

TEST_P(IoBackendTest, ReadsBackWhatItWrote) {
  constexpr std::uint32_t kPiece = 8192;
  constexpr std::uint64_t kPieces = 50;
  const auto backend = make(GetParam(), 8);
  const TestFile file(kPiece * kPieces);
  std::vector<std::byte> source = random_bytes(kPiece * kPieces, 1);
  std::vector<std::byte> target(source.size());
  const std::uint32_t number = backend->add_file(file.descriptor());
  backend->add_memory(source.data(), source.size());  // half of the memory is known, half is not
  for (const IoOperation operation : {IoOperation::kWrite, IoOperation::kRead}) {
    std::vector<std::byte>& memory = operation == IoOperation::kWrite ? source : target;
    std::vector<IoResult> results;
    for (std::uint64_t i = 0; i < kPieces; ++i) {
      while (i - results.size() >= backend->depth()) {
        backend->reap(results, Duration::max());
      }
      backend->queue({.operation = operation,
                      .file = number,
                      .offset = (kPieces - 1 - i) * kPiece,
                      .memory = memory.data() + (kPieces - 1 - i) * kPiece,
                      .bytes = kPiece,
                      .token = i});
    }
    while (results.size() < kPieces) {
      backend->reap(results, Duration::max());
    }
    for (const IoResult& result : results) {
      EXPECT_EQ(result.result, static_cast<std::int32_t>(kPiece)) << std::strerror(-result.result);
    }
  }
  EXPECT_EQ(source, target);
  EXPECT_EQ(source, file.read(0, source.size()));
  backend->queue({.operation = IoOperation::kSync, .file = number, .token = 7});
  EXPECT_EQ(collect(*backend, 1).at(7), 0);
}

TEST_P(IoBackendTest, GivesBackWhatTheKernelSaid) {
  const auto backend = make(GetParam(), 4);
  const TestFile file(5000);
  const TestFile gone(4096);
  const int read_only = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<std::byte> memory(4096);
  const std::uint32_t number = backend->add_file(file.descriptor());
  const std::uint32_t closed = backend->add_file(1 << 20);
  const std::uint32_t unwritable = backend->add_file(read_only);
  backend->queue({.file = number, .offset = 4096, .memory = memory.data(), .bytes = 4096, .token = 1});
  backend->queue({.file = number, .offset = 8192, .memory = memory.data(), .bytes = 4096, .token = 2});
  backend->queue({.file = closed, .offset = 0, .memory = memory.data(), .bytes = 4096, .token = 3});
  backend->queue(
      {.operation = IoOperation::kWrite, .file = unwritable, .memory = memory.data(), .bytes = 4096, .token = 4});
  const std::map<std::uint64_t, std::int32_t> results = collect(*backend, 4);
  EXPECT_EQ(results.at(1), 5000 - 4096) << "a short read is reported as such";
  EXPECT_EQ(results.at(2), 0);
  EXPECT_EQ(results.at(3), -EBADF);
  EXPECT_EQ(results.at(4), -EBADF);
  close(read_only);
}

TEST_P(IoBackendTest, NumbersOfRemovedFilesAndMemoryAreUsedAgain) {
  const auto backend = make(GetParam(), 1);
  const TestFile first(4096);
  const TestFile second(4096);
  second.write(0, random_bytes(4096, 2));
  void* const mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const page = static_cast<std::byte*>(mapped);
  for (int round = 0; round < 3; ++round) {
    // The same addresses, of other pages each time: a registration that outlived its memory would read into the old ones.
    ASSERT_EQ(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), mapped);
    const std::uint32_t empty = backend->add_file(first.descriptor());
    backend->remove_file(empty);
    const std::uint32_t number = backend->add_file(second.descriptor());
    EXPECT_EQ(number, empty);
    backend->add_memory(page, 4096);
    backend->queue({.file = number, .memory = page, .bytes = 4096, .token = 0});
    EXPECT_EQ(collect(*backend, 1).at(0), 4096);
    EXPECT_EQ(std::vector<std::byte>(page, page + 4096), random_bytes(4096, 2));
    backend->remove_memory(page);
    backend->remove_file(number);
  }
  munmap(mapped, 4096);
}

TEST_P(IoBackendTest, WakesAndTimesOut) {
  const auto backend = make(GetParam(), 2);
  std::vector<IoResult> results;
  backend->reap(results, std::chrono::milliseconds(1));
  EXPECT_TRUE(results.empty());
  std::atomic<int> rounds{0};
  constexpr int kRounds = 200;
  std::thread waker([&] {
    for (int i = 0; i < kRounds; ++i) {
      backend->wake();
      while (rounds.load() <= i) {
        std::this_thread::yield();
      }
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    backend->reap(results, Duration::max());  // hangs if a wake-up is lost
    rounds.fetch_add(1);
  }
  waker.join();
  backend->wake();
  backend->wake();
  backend->reap(results, Duration::max());
  EXPECT_TRUE(results.empty());
}

TEST_P(IoBackendTest, WakersNeverLoseTheirWord) {
  const auto backend = make(GetParam(), 2);
  constexpr int kWords = 20'000;
  std::atomic<int> said{0};
  std::thread waker([&] {
    for (int i = 0; i < kWords; ++i) {
      said.fetch_add(1, std::memory_order_relaxed);  // ordered by wake()
      backend->wake();
    }
  });
  std::vector<IoResult> results;
  while (said.load(std::memory_order_relaxed) < kWords) {
    backend->reap(results, Duration::max());
  }
  waker.join();
}

TEST(MakeIoBackendTest, RefusesAnInvalidDepth) {
  EXPECT_EQ(make_io_backend(IoMethod::kBest, 0).error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(make_io_backend(IoMethod::kBest, 5000).error().message, HasSubstr("give 1 to 1024"));
}

TEST(MakeIoBackendTest, SaysWhatItIs) {
  EXPECT_EQ(make(IoMethod::kThreads, 3)->describe(), "pread and pwrite on 3 threads");
  if (!has_uring()) {
    GTEST_SKIP() << "no io_uring here";
  }
  EXPECT_THAT(make(IoMethod::kBest, 16)->describe(), HasSubstr("io_uring, 16 in flight"));
}

// In a child process, because it cannot get back the rights that it drops.
[[noreturn]] void without_io_uring() {
  const sock_filter refuse[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0 /* the system call's number */),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = 4, .filter = const_cast<sock_filter*>(refuse)};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::fputs("no seccomp here", stderr);
    std::_Exit(0);
  }
  const auto backend = make_io_backend(IoMethod::kBest, 2);
  std::fputs(backend ? (*backend)->describe().c_str() : backend.error().message.c_str(), stderr);
  std::_Exit(make_io_backend(IoMethod::kUring, 2) ? 1 : 0);
}

TEST(MakeIoBackendDeathTest, FallsBackToThreadsWhereIoUringIsForbidden) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      without_io_uring(), ::testing::ExitedWithCode(0),
      "pread and pwrite on 2 threads: (io_uring_setup: .*io_uring_disabled|built without io_uring)|no seccomp here");
}

// The kernel maps a new ring where another thread's ring was: for the thread sanitizer.
TEST(MakeIoBackendTest, ThreadsMakeAndDestroyBackendsSideBySide) {
  const auto make_some = [] {
    for (int i = 0; i < 50; ++i) {
      EXPECT_NE(make(IoMethod::kBest, 2), nullptr);
    }
  };
  std::thread other(make_some);
  make_some();
  other.join();
}

[[noreturn]] void without_locked_memory() {
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
  // Root may lock any amount: become another user.
  if (setrlimit(RLIMIT_MEMLOCK, &none) != 0 || (getuid() == 0 && setuid(65534) != 0)) {
    std::fputs("cannot lower the limit here", stderr);
    std::_Exit(0);
  }
  const auto made = make_io_backend(IoMethod::kBest, 2);
  if (!made) {
    std::fputs(made.error().message.c_str(), stderr);
    std::_Exit(1);
  }
  std::fputs((*made)->describe().c_str(), stderr);
  std::_Exit(0);
}

TEST(MakeIoBackendDeathTest, WorksWithoutLockedMemory) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(without_locked_memory(), ::testing::ExitedWithCode(0),
              "buffers not registered: RLIMIT_MEMLOCK|pread and pwrite|cannot lower");
}

}  // namespace
}  // namespace cairn
