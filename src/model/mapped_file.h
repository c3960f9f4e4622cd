// MappedFile: a regular file mapped read-only for as long as the object lives. Not a parser. The
// size is taken once, at opening; whoever parses checks every offset against it, so no read leaves
// the mapping. Thread-safe to read.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "polysil/base/status.h"

namespace polysil {

class MappedFile final {
 public:
  // Refuses what is not a regular file. An empty file maps to no bytes.
  static StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  // The last component of the path.
  std::string name() const;
  std::span<const std::byte> bytes() const { return bytes_; }
  // Asks the system to read ahead; before all of it is needed.
  void Prefetch() const;
  // What was read leaves the process' memory. It may be read again.
  void DropPages() const;

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const std::byte> bytes_;
};

// A whole small text file. RESOURCE_EXHAUSTED above bytes_max; NOT_FOUND where there is none.
StatusOr<std::string> ReadTextFile(const std::string& path, int64_t bytes_max);

// SHA-256 in hex.
std::string Sha256Hex(std::span<const std::byte> bytes);

}  // namespace polysil
