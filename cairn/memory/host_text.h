// Reading /proc and /sys, and wording of sizes and errors. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn {

// The contents of a small file of /proc or /sys; std::nullopt if it cannot be read.
[[nodiscard]] std::optional<std::string> read_text(const std::string& path);

// The number after `name` at the start of a line, or after "Node N " as in a node's meminfo; in bytes if "kB" follows:
// find_field("MemFree: 4 kB\n", "MemFree:") is 4096.
[[nodiscard]] std::optional<std::uint64_t> find_field(std::string_view text, std::string_view name);

// std::nullopt if the text is anything but one number, such as "max".
[[nodiscard]] std::optional<std::int64_t> parse_number(std::string_view text);

// A file that holds one number.
[[nodiscard]] std::optional<std::int64_t> read_number(const std::string& path);

// "1536 bytes (1.5 KiB)"
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

// "No space left on device"
[[nodiscard]] std::string errno_text(int error);

// Joins notes for people: "first; second".
void add_note(std::string& notes, std::string_view note);

}  // namespace cairn
