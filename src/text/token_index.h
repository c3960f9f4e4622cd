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
  std::memcpy(&tail, at, left);
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
    Place(key, static_cast<int32_t>(entries_.size()) - 1);
    return true;
  }

  TokenId Find(std::string_view key) const {
    if (key.size() > bytes_max_) return kNone;
    const uint64_t hash = HashBytes(key);
    const uint64_t word = key.size() <= kInlineBytes ? Load(key) : hash;
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.entry < 0) return kNone;
      if (slot.word != word || slot.bytes != key.size()) continue;
      if (key.size() <= kInlineBytes || this->key(static_cast<size_t>(slot.entry)) == key) {
        return slot.id;
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
  static constexpr size_t kInlineBytes = sizeof(uint64_t);

  struct Entry {
    size_t begin;  // in pool_
    uint32_t bytes;
    TokenId id;
  };
  // A short key lies in its slot, so that finding it touches one cache line.
  struct Slot {
    uint64_t word = 0;  // the key, or the hash of a long one
    uint32_t bytes = 0;
    TokenId id = kNone;
    int32_t entry = -1;  // -1: this slot is free
  };

  static uint64_t Load(std::string_view key) {
    uint64_t word = 0;
    std::memcpy(&word, key.data(), key.size());
    return word;
  }
  void Place(std::string_view key, int32_t entry) {
    const uint64_t hash = HashBytes(key);
    size_t at = hash & mask_;
    while (slots_[at].entry >= 0) at = (at + 1) & mask_;
    slots_[at] = {.word = key.size() <= kInlineBytes ? Load(key) : hash,
                  .bytes = static_cast<uint32_t>(key.size()),
                  .id = entries_[static_cast<size_t>(entry)].id,
                  .entry = entry};
  }
  void Rehash(size_t size) {
    slots_.assign(size, Slot());
    mask_ = size - 1;
    for (size_t i = 0; i < entries_.size(); ++i) Place(key(i), static_cast<int32_t>(i));
  }

  std::string pool_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  // a power of two of them, at most half used
  size_t mask_ = 0;
  size_t bytes_max_ = 0;
};

}  // namespace polysil
