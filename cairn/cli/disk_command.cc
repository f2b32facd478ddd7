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
  command->add_option("file", options->path, "File of a disk tier (disk.path of the configuration)")->required();
  command->add_flag("--json", options->json, "Print one JSON object");
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
  CLI::App* disk = app.add_subcommand("disk", "Inspects, verifies, compacts or reshards a disk tier");
  disk->require_subcommand(1);
  disk->footer(
      "No manager may have the file open. Exits with status 0 if the file is good, 1 if a part of it is damaged, 2 if "
      "it\n"
      "cannot be read or written.\n\n"
      "Examples:\n"
      "  cairn disk inspect /nvme/blocks                      its model, number of blocks and damage\n"
      "  cairn disk inspect /nvme/blocks --keys               and the key of every block\n"
      "  cairn disk verify /nvme/blocks                       reads every block and checks its checksum\n"
      "  cairn disk compact /nvme/blocks                      writes a new file without the damaged blocks\n"
      "  cairn disk compact /nvme/blocks --blocks 100000      changes the number of blocks, keeping the newest\n"
      "  cairn disk reshard /nvme/blocks --tensor 4           rewrites the files of ranks for 4 tensor ranks");
  CLI::App* inspect = add_work(*disk, "inspect", "Shows the model, the number of blocks and the damage of a file",
                               options, &inspect_disk, chosen);
  inspect->add_flag("--keys", options->keys, "List all blocks, oldest first");
  inspect->footer(
      "Reads the index of the file, not the blocks; `cairn disk verify` reads them too. Exits with status 1 if "
      "entries\n"
      "are damaged.\n\n"
      "Examples:\n"
      "  cairn disk inspect /nvme/blocks\n"
      "  cairn disk inspect /nvme/blocks --keys --json");
  CLI::App* verify =
      add_work(*disk, "verify", "Reads every block and checks its checksum", options, &verify_disk, chosen);
  verify->footer(
      "Does not change the file. Exits with status 1 if a block or an entry is damaged or cannot be read. A manager "
      "never\n"
      "serves such a block: it checks every block that it reads. This command checks all of them at once.\n\n"
      "Example:\n"
      "  cairn disk verify /nvme/blocks --json");
  CLI::App* compact =
      add_work(*disk, "compact", "Writes a new file with the undamaged blocks, and replaces the old one", options,
               &compact_disk, chosen);
  compact->add_option("--blocks", options->blocks, "Number of blocks of the new file; default: that of the old file")
      ->check(CLI::Range(1U, 0xFFFF'FFFEU));
  compact->footer(
      "Needs space for the new file next to the old one. The new file replaces the old one in one step: after a crash\n"
      "there is one or the other. If the new file has room for fewer blocks, the newest are kept. Use --blocks when "
      "you\n"
      "change disk.blocks or disk.size in the configuration: a manager opens the file only if the number is the "
      "same.\n\n"
      "Examples:\n"
      "  cairn disk compact /nvme/blocks\n"
      "  cairn disk compact /nvme/blocks --blocks 100000");
  CLI::App* reshard = add_work(*disk, "reshard", "Rewrites the files of ranks for another tensor or pipeline size",
                               options, &reshard_disk, chosen);
  reshard->add_option("--tensor", options->tensor, "Tensor-parallel size of the engine from now on")
      ->required()
      ->check(CLI::Range(1U, 65'536U));
  reshard->add_option("--pipeline", options->pipeline, "Pipeline-parallel size of the engine from now on")
      ->capture_default_str()
      ->check(CLI::Range(1U, 65'536U));
  reshard
      ->add_option("--layers", options->layers,
                   "Layers of each pipeline stage, such as 15,17; default: as equal as possible, as vLLM deals them")
      ->delimiter(',');
  reshard->add_flag("--dry-run", options->dry_run, "Show the files and the space that it takes, and change nothing");
  reshard->footer(
      "If ranks hold the blocks, FILE is the leader's (disk.path), and the files of the ranks are beside it, named by\n"
      "the layers and heads that they hold. They say how many ranks wrote them; give only the new sizes. Run it after\n"
      "the engine was stopped and before it starts with other sizes; the files of all ranks must be on this "
      "machine.\n\n"
      "Every block is verified; a damaged one is dropped, and the exit status is 1. Needs space for the new files "
      "next\n"
      "to the old ones. If it is killed, the old files are there, or the next reshard finishes what this one began.\n\n"
      "Examples:\n"
      "  cairn disk reshard /nvme/blocks --tensor 4 --dry-run\n"
      "  cairn disk reshard /nvme/blocks --tensor 4\n"
      "  cairn disk reshard /nvme/blocks --tensor 2 --pipeline 2 --layers 15,17");
}

}  // namespace cairn::cli
