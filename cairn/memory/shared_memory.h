// SharedMemory: host memory that several processes of a machine map: a memfd that is sealed, so that its size never changes.
//
// It has no pages until one of the processes touches them. A region maps it (SystemRegionOptions::shared). The memory lives as
// long as a process holds its descriptor or a mapping.
//
// Thread safety: immutable; safe from any thread.
// Ownership: shared; the last holder closes the descriptor.
// Errors: make(): a size of 0, or the system's reason. adopt(): a descriptor that is no sealed memory, which another process
// could cut off under a running copy.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/base/result.h"

namespace cairn {

class SharedMemory;
using SharedMemoryPtr = std::shared_ptr<const SharedMemory>;

class SharedMemory {
 public:
  [[nodiscard]] static Result<SharedMemoryPtr> make(std::uint64_t size);
  // Takes the descriptor, which another process sent, and closes it also if it is refused.
  [[nodiscard]] static Result<SharedMemoryPtr> adopt(int descriptor);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  // Bytes that have pages by now, touched by any process.
  [[nodiscard]] std::uint64_t touched() const;
  // Whether both are the same memory, through whichever descriptor.
  [[nodiscard]] bool is_same(const SharedMemory& other) const { return inode_ == other.inode_ && size_ == other.size_; }

 private:
  explicit SharedMemory(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
  std::uint64_t size_ = 0;
  std::uint64_t inode_ = 0;  // of one file system, which all memfds are on
};

}  // namespace cairn
