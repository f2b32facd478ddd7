// The options of `cairn disk`.
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>

#include "cairn/cli/commands.h"
#include "cairn/cli/disk.h"

namespace cairn::cli {

namespace {

using Work = Result<DiskEnd> (*)(const DiskOptions&, const DiskStreams&);

CLI::App* add_work(CLI::App& disk, const std::string& name, const std::string& what,
                   const std::shared_ptr<DiskOptions>& options, Work work, Chosen& chosen) {
  CLI::App* command = disk.add_subcommand(name, what);
  command->add_option("file", options->path, "The file of a disk tier: disk.path of a configuration")->required();
  command->add_flag("--json", options->json, "Writes one JSON object");
  command->callback([=, &chosen] {
    chosen = [=] {
      const Result<DiskEnd> end = work(
          *options,
          {.out = std::cout, .log = std::cerr, .stop = stop_on_interrupt(), .log_is_a_terminal = log_is_a_terminal()});
      if (!end) {
        return finish("disk " + name, Unexpected(Error(end.error())),
                      end.error().code == ErrorCode::kCancelled ? 130 : 2);
      }
      return *end == DiskEnd::kGood ? 0 : 1;
    };
  });
  return command;
}

}  // namespace

void add_disk(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<DiskOptions>();
  CLI::App* disk = app.add_subcommand("disk", "Looks at the file of a disk tier, verifies its blocks, or compacts it");
  disk->require_subcommand(1);
  disk->footer(
      "The file must not be in use. Exit status 0: all is well; 1: something in the file is wrong; 2: it cannot be\n"
      "looked at, or not be written anew.\n\n"
      "Examples:\n"
      "  cairn disk inspect /nvme/blocks                      whose blocks it has, and how many\n"
      "  cairn disk inspect /nvme/blocks --keys               every one of them\n"
      "  cairn disk verify /nvme/blocks                       reads them all and checks their checksums\n"
      "  cairn disk compact /nvme/blocks                      writes it anew, without those that are wrong\n"
      "  cairn disk compact /nvme/blocks --blocks 100000      for so many blocks; if they are fewer, the newest");
  CLI::App* inspect = add_work(*disk, "inspect", "Shows whose blocks a file has, how many, and what is damaged",
                               options, &inspect_disk, chosen);
  inspect->add_flag("--keys", options->keys, "Lists the blocks, oldest first");
  inspect->footer(
      "Reads no block: see `cairn disk verify`. Exit status 1 where entries are damaged.\n\n"
      "Examples:\n"
      "  cairn disk inspect /nvme/blocks\n"
      "  cairn disk inspect /nvme/blocks --keys --json");
  CLI::App* verify =
      add_work(*disk, "verify", "Reads every block and holds it to its checksum", options, &verify_disk, chosen);
  verify->footer(
      "Changes nothing. Exit status 1 where a block is wrong or cannot be read, or entries are damaged. None of them\n"
      "would be served: a manager finds out when it reads them, this finds out at once.\n\n"
      "Example:\n"
      "  cairn disk verify /nvme/blocks --json");
  CLI::App* compact = add_work(*disk, "compact", "Writes the file anew with only the blocks that are right", options,
                               &compact_disk, chosen);
  compact->add_option("--blocks", options->blocks, "Room of the new file; the default is that of the old one")
      ->check(CLI::Range(1U, 0xFFFF'FFFEU));
  compact->footer(
      "Needs room for the new file beside the old one (blocks x bytes of a block), which it then replaces at once: a\n"
      "crash leaves one or the other. Where there are more blocks than room the newest stay. A manager opens the file\n"
      "when its configuration says the same number (disk.blocks or disk.size).\n\n"
      "Examples:\n"
      "  cairn disk compact /nvme/blocks\n"
      "  cairn disk compact /nvme/blocks --blocks 100000");
}

}  // namespace cairn::cli
