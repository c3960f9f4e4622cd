// TokenIndex: from a token's bytes to its id. Built once, then read by many threads.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "polysil/base/ids.h"

namespace polysil {

// Fixed and fast; not for keys that an attacker inserts.
inline uint64_t HashBytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  uint64_t hash = bytes.size() * kMultiplier;
  const auto mix = [&hash](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  };
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    mix(word);
  }
  uint64_t tail = 0;
  for (size_t i = 0; i < left; ++i) tail |= uint64_t{static_cast<uint8_t>(at[i])} << (8 * i);
  mix(tail);
  return hash;
}

class TokenIndex final {
 public:
  static constexpr TokenId kNone = -1;

  TokenIndex() { Rehash(16); }

  // False, and nothing changes, if the key is there already.
  bool Insert(std::string_view key, TokenId id) {
    if (Find(key) != kNone) return false;
    if ((entries_.size() + 1) * 2 > slots_.size()) Rehash(slots_.size() * 2);
    entries_.push_back({pool_.size(), static_cast<uint32_t>(key.size()), id});
    pool_.append(key);
    if (key.size() > bytes_max_) bytes_max_ = key.size();
    Place(HashBytes(key), static_cast<int32_t>(entries_.size()) - 1);
    return true;
  }

  TokenId Find(std::string_view key) const {
    if (key.size() > bytes_max_) return kNone;
    const uint64_t hash = HashBytes(key);
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.entry < 0) return kNone;
      if (slot.tag != tag) continue;
      const Entry& entry = entries_[static_cast<size_t>(slot.entry)];
      if (entry.bytes == key.size() &&
          std::memcmp(pool_.data() + entry.begin, key.data(), key.size()) == 0) {
        return entry.id;
      }
    }
  }

  size_t size() const { return entries_.size(); }
  size_t bytes_max() const { return bytes_max_; }  // of the longest key
  std::string_view key(size_t i) const {           // in the order of insertion
    return std::string_view(pool_).substr(entries_[i].begin, entries_[i].bytes);
  }
  TokenId id(size_t i) const { return entries_[i].id; }

 private:
  struct Entry {
    size_t begin;  // in pool_
    uint32_t bytes;
    TokenId id;
  };
  struct Slot {
    uint32_t tag = 0;
    int32_t entry = -1;
  };

  void Place(uint64_t hash, int32_t entry) {
    size_t at = hash & mask_;
    while (slots_[at].entry >= 0) at = (at + 1) & mask_;
    slots_[at] = {static_cast<uint32_t>(hash >> 32), entry};
  }
  void Rehash(size_t size) {
    slots_.assign(size, Slot());
    mask_ = size - 1;
    for (size_t i = 0; i < entries_.size(); ++i) Place(HashBytes(key(i)), static_cast<int32_t>(i));
  }

  std::string pool_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  // a power of two of them, at most half used
  size_t mask_ = 0;
  size_t bytes_max_ = 0;
};

}  // namespace polysil
