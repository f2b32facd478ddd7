// SequenceStore: the states of sequences (bytes of any length, named by tokens) in a file, through Cairn's C interface.
//
// A state is cut into pieces of one block each. The first piece begins with a header: the length of the state and a hash of
// its bytes. The tokens of the sequence are the salt of its keys, and the number of a piece is its token, so pieces of
// different sequences never meet. Cairn verifies each piece when it reads it from the file; the hash covers the whole.
//
// Errors: a state that is missing, damaged or incomplete is not restored. open() and save() say what failed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <cairn/cairn_c.h>

class SequenceStore {
 public:
  // `model` names the model and everything else that states depend on; a file belongs to one model.
  // Throws std::runtime_error if the file cannot be opened.
  SequenceStore(const std::string& path, const std::string& size, const std::string& model);

  // Stores the state of these tokens, unless it is stored already. Throws std::runtime_error if it does not fit.
  void save(std::span<const int32_t> tokens, std::span<const uint8_t> state);
  // std::nullopt if the state of exactly these tokens is not stored, or is damaged.
  [[nodiscard]] std::optional<std::vector<uint8_t>> restore(std::span<const int32_t> tokens);

 private:
  [[nodiscard]] std::vector<cairn_key> keys(std::span<const int32_t> tokens, size_t count) const;
  [[nodiscard]] uint8_t* address(uint32_t block_id) const;
  void save_pieces(std::span<const cairn_key> keys, std::span<const uint8_t> bytes);
  // False if one of the pieces could not be read.
  [[nodiscard]] bool restore_pieces(std::span<const cairn_key> keys, std::span<uint8_t> bytes);

  struct Destroy {
    void operator()(cairn_manager* manager) const { cairn_manager_destroy(manager); }
  };
  std::unique_ptr<cairn_manager, Destroy> manager_;
};
