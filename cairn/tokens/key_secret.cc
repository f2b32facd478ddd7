#include "cairn/tokens/key_secret.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cairn/base/str_cat.h"
#include "cairn/hash/secret_bytes.h"
#include "cairn/hash/sha256_digest.h"

namespace cairn {

KeySecret::~KeySecret() { internal::erase_secret(bytes_); }

KeySecret KeySecret::random() {
  Bytes bytes;
  internal::fill_random(bytes);
  const KeySecret secret(bytes);
  internal::erase_secret(bytes);
  return secret;
}

Result<KeySecret> KeySecret::from_hex(std::string_view text) {
  const Result<Digest> digest = Digest::from_hex(text);
  if (!digest) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a key secret of ", text.size(), " characters; give 64 hexadecimal digits"));
  }
  return KeySecret(digest->bytes);
}

Result<KeySecret> KeySecret::from_file(const std::string& path) {
  const auto failed = [&path](const char* what) {
    return fail(ErrorCode::kIo, str_cat("cannot ", what, " the key secret file ", path, ": ", std::strerror(errno)));
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file == -1) {
    return failed("open");
  }
  // Longer than any valid file.
  std::array<char, 256> buffer;
  const ssize_t size = ::read(file, buffer.data(), buffer.size());
  const int error = errno;
  ::close(file);
  if (size < 0) {
    errno = error;
    return failed("read");
  }
  std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  constexpr std::string_view kSpace = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  text = text.substr(0, text.find_last_not_of(kSpace) + 1);
  Result<KeySecret> secret = from_hex(static_cast<std::size_t>(size) < buffer.size() ? text : std::string_view());
  internal::erase_secret(std::as_writable_bytes(std::span(buffer)));
  if (!secret) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the key secret file ", path,
                                                     " does not hold 64 hexadecimal digits and nothing else; make one "
                                                     "with `openssl rand -hex 32`"));
  }
  return secret;
}

bool operator==(const KeySecret& one, const KeySecret& other) {
  return internal::same_secret(one.bytes_, other.bytes_);
}

}  // namespace cairn
