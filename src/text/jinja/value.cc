#include "text/jinja/value.h"

#include <functional>

#include "text/jinja/number.h"

namespace polysil::jinja {
namespace {

constexpr size_t kScanEntriesMax = 8;

}  // namespace

Heap::~Heap() {
  // Whatever is left is kept alive by a cycle. All references are cut before anything is freed.
  releasing_ = true;
  std::vector<Object*> all;
  for (Object* object = first_; object != nullptr; object = object->next) all.push_back(object);
  for (Object* object : all) ++object->references;
  for (Object* object : all) object->Clear();
  for (Object* object : all) delete object;
}

void Heap::Adopt(Object* object, size_t bytes) {
  object->heap = this;
  object->next = first_;
  if (first_ != nullptr) first_->previous = object;
  first_ = object;
  object->bytes_charged = bytes;
  bytes_ += bytes;
}

void Heap::Unlink(Object* object) {
  if (object->previous != nullptr) object->previous->next = object->next;
  if (object->next != nullptr) object->next->previous = object->previous;
  if (first_ == object) first_ = object->next;
  bytes_ -= object->bytes_charged;
}

void Heap::Release(Object* object) {
  // A list, not recursion: a value nested a million deep is freed in constant stack.
  dead_.push_back(object);
  if (releasing_) return;
  releasing_ = true;
  while (!dead_.empty()) {
    Object* dead = dead_.back();
    dead_.pop_back();
    Unlink(dead);
    delete dead;
  }
  releasing_ = false;
}

int64_t Range::length() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  // Unsigned: the ends may be as far apart as the type allows.
  const uint64_t span = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                 : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t count = (span - 1) / stride + 1;
  return count > INT64_MAX ? INT64_MAX : static_cast<int64_t>(count);
}

namespace {

int KeyRank(const Value& value) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
      return 0;
    case Kind::kString:
      return 1;
    case Kind::kTuple:
      return 2;
    default:
      return 3;
  }
}

// Negative, zero or positive. Depth is bounded where tuples are made into keys.
int CompareKeys(const Value& a, const Value& b) {
  const int rank = KeyRank(a);
  if (rank != KeyRank(b)) return rank - KeyRank(b);
  switch (rank) {
    case 0:
      return CompareNumbersTotal(a, b);
    case 1:
      return a.as<String>().bytes().compare(b.as<String>().bytes());
    case 2: {
      const std::vector<Value>& left = a.as<List>().items;
      const std::vector<Value>& right = b.as<List>().items;
      for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
        if (const int order = CompareKeys(left[i], right[i]); order != 0) return order;
      }
      return left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
    }
    default:
      if (a.kind() != b.kind()) return a.kind() < b.kind() ? -1 : 1;
      if (a.is_none() || a.is_undefined()) return 0;
      return std::less<const Object*>()(a.object(), b.object())   ? -1
             : std::less<const Object*>()(b.object(), a.object()) ? 1
                                                                  : 0;
  }
}

}  // namespace

bool KeyLess::operator()(const Value& a, const Value& b) const {
  return CompareKeys(a, b) < 0;
}

const Dict::Entry* Dict::Lookup(const Value& key) const {
  if (entries.size() <= kScanEntriesMax) {
    for (const Entry& entry : entries) {
      if (CompareKeys(entry.first, key) == 0) return &entry;
    }
    return nullptr;
  }
  if (index_ == nullptr) {
    index_ = std::make_unique<std::map<Value, size_t, KeyLess>>();
    for (size_t i = 0; i < entries.size(); ++i) index_->emplace(entries[i].first, i);
  }
  const auto found = index_->find(key);
  return found == index_->end() ? nullptr : &entries[found->second];
}

const Value* Dict::Find(const Value& key) const {
  const Entry* entry = Lookup(key);
  return entry == nullptr ? nullptr : &entry->second;
}

const Value* Dict::Find(std::string_view key) const {
  if (entries.size() <= kScanEntriesMax) {
    for (const Entry& entry : entries) {
      if (entry.first.is_string() && entry.first.as<String>().bytes() == key) return &entry.second;
    }
    return nullptr;
  }
  String text(Text::Trusted(std::string(key)));
  return Find(Value(&text));
}

void Dict::Set(Value key, Value value) {
  if (const Entry* entry = Lookup(key); entry != nullptr) {
    entries[static_cast<size_t>(entry - entries.data())].second = std::move(value);
    return;
  }
  if (index_ != nullptr) index_->emplace(key, entries.size());
  entries.emplace_back(std::move(key), std::move(value));
}

void Dict::Erase(const Value& key) {
  const Entry* entry = Lookup(key);
  if (entry == nullptr) return;
  index_.reset();
  entries.erase(entries.begin() + (entry - entries.data()));
}

}  // namespace polysil::jinja
