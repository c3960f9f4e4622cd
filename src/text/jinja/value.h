// Value: one value of the template language, with Python's types: a scalar in place or a counted
// reference to an Object. Objects belong to the Heap of one rendering, which frees what cycles keep
// alive; literals of a parsed template belong to no heap, are never changed and may be shared by
// threads. Operations on values are in operations.h. Not thread-safe otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/text.h"

namespace polysil::jinja {

class Heap;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kBigInt,
  kString,
  kBytes,
  kList,
  kTuple,
  kDict,
  kDictView,  // keys(), values(), items()
  kGenerator,
  kRange,
  kNamespace,
  kLoop,
  kCallable,
  kScope,
};

struct Object {
  explicit Object(Kind object_kind) : kind(object_kind) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  // Drops the references to other objects.
  virtual void Clear() {}

  Heap* heap = nullptr;  // null: owned by a template, not counted
  Object* previous = nullptr;
  Object* next = nullptr;
  size_t bytes_charged = 0;
  uint32_t references = 0;
  Kind kind;
};

class Value final {
 public:
  Value() : kind_(Kind::kUndefined), object_(nullptr) {}
  explicit Value(Object* object) : kind_(object->kind), object_(object) { Retain(); }
  Value(const Value& other) : kind_(other.kind_), tainted_(other.tainted_), bits_(other.bits_) {
    Retain();
  }
  Value(Value&& other) noexcept : kind_(other.kind_), tainted_(other.tainted_), bits_(other.bits_) {
    other.kind_ = Kind::kUndefined;
    other.object_ = nullptr;
  }
  Value& operator=(const Value& other) {
    Value copy(other);
    Swap(copy);
    return *this;
  }
  Value& operator=(Value&& other) noexcept {
    Value moved(std::move(other));
    Swap(moved);
    return *this;
  }
  ~Value() { Drop(); }

  static Value None() { return Scalar(Kind::kNone, false); }
  static Value Bool(bool value, bool tainted = false) {
    Value result = Scalar(Kind::kBool, tainted);
    result.bits_ = value ? 1 : 0;
    return result;
  }
  static Value Int(int64_t value, bool tainted = false) {
    Value result = Scalar(Kind::kInt, tainted);
    result.bits_ = static_cast<uint64_t>(value);
    return result;
  }
  static Value Float(double value, bool tainted = false) {
    Value result = Scalar(Kind::kFloat, tainted);
    result.float_ = value;
    return result;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_integer() const {  // what Python's operators take for an int
    return kind_ == Kind::kInt || kind_ == Kind::kBool || kind_ == Kind::kBigInt;
  }
  bool is_number() const { return is_integer() || kind_ == Kind::kFloat; }
  bool is_object() const { return kind_ >= Kind::kBigInt || is_undefined(); }

  bool bool_value() const { return bits_ != 0; }
  int64_t int_value() const { return static_cast<int64_t>(bits_); }
  double float_value() const { return float_; }
  Object* object() const { return object_; }  // may be null for undefined
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }

  // A scalar that was computed from untrusted input: its digits are untrusted when printed.
  bool tainted() const { return tainted_; }
  void set_tainted(bool tainted) { tainted_ = tainted; }
  // The only reference to its object, which may be changed in place.
  bool unique() const {
    return object_ != nullptr && object_->heap != nullptr && object_->references == 1;
  }

 private:
  static Value Scalar(Kind kind, bool tainted) {
    Value result;
    result.kind_ = kind;
    result.tainted_ = tainted;
    return result;
  }
  void Swap(Value& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(tainted_, other.tainted_);
    std::swap(bits_, other.bits_);
  }
  void Retain() {
    if (is_object() && object_ != nullptr && object_->heap != nullptr) ++object_->references;
  }
  void Drop();

  Kind kind_;
  bool tainted_ = false;
  union {
    uint64_t bits_;
    double float_;
    Object* object_;
  };
};

// Owns the objects of one rendering. Not thread-safe.
class Heap final {
 public:
  Heap() = default;
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  template <typename T, typename... Args>
  T* New(Args&&... args) {
    auto* object = new T(std::forward<Args>(args)...);
    Adopt(object, sizeof(T));
    return object;
  }
  // Tells the heap how large an object has become.
  void Recharge(Object& object, size_t bytes) {
    if (object.heap == nullptr) return;
    bytes_ += bytes - object.bytes_charged;
    object.bytes_charged = bytes;
  }
  size_t bytes() const { return bytes_; }
  void Release(Object* object);

 private:
  void Adopt(Object* object, size_t bytes);
  void Unlink(Object* object);

  Object* first_ = nullptr;
  std::vector<Object*> dead_;
  size_t bytes_ = 0;
  bool releasing_ = false;
};

inline void Value::Drop() {
  if (is_object() && object_ != nullptr && object_->heap != nullptr && --object_->references == 0) {
    object_->heap->Release(object_);
  }
}

// Why a value is undefined, for the message when it is used.
struct Undefined final : Object {
  enum class Reason : uint8_t { kName, kMember, kText, kUnsafe };
  Undefined(Reason why, std::string object_type, Value member)
      : Object(Kind::kUndefined),
        reason(why),
        type(std::move(object_type)),
        name(std::move(member)) {}
  void Clear() override { name = Value(); }
  Reason reason;
  std::string type;  // of the value that lacks the member, as Jinja prints it; or the text itself
  Value name;        // of the variable or member
};

struct String final : Object {
  explicit String(Text value, bool is_markup = false)
      : Object(Kind::kString), text(std::move(value)), markup(is_markup) {}
  const std::string& bytes() const { return text.bytes(); }
  Text text;
  bool markup;  // made by |safe or |escape: joined text is HTML-escaped (reference dialect only)
};

struct Bytes final : Object {
  explicit Bytes(Text value) : Object(Kind::kBytes), text(std::move(value)) {}
  Text text;
};

// List, tuple, dict view or generator. A generator is a list that is read once, through `cursor`.
struct List final : Object {
  explicit List(Kind list_kind) : Object(list_kind) {}
  void Clear() override { items.clear(); }
  std::vector<Value> items;
  const char* type_name = nullptr;  // of views and generators, as Python names them
  size_t cursor = 0;
  std::string error;   // of a generator: what happens after the items it has
  bool group = false;  // a (grouper, list) tuple of groupby
};

// A total order over the values that may be keys: Python's equality, so 1, 1.0 and true are one
// key.
struct KeyLess {
  bool operator()(const Value& a, const Value& b) const;
};

struct Dict final : Object {
  using Entry = std::pair<Value, Value>;
  explicit Dict(Kind dict_kind = Kind::kDict) : Object(dict_kind) {}

  void Clear() override {
    entries.clear();
    index_.reset();
  }
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // Replaces the value where the key is there.
  void Set(Value key, Value value);
  void Erase(const Value& key);

  std::vector<Entry> entries;  // in insertion order; change keys through Set and Erase only

 private:
  const Entry* Lookup(const Value& key) const;
  // Made at the first lookup in a dict too large to scan; ordered, so no input makes it slow.
  mutable std::unique_ptr<std::map<Value, size_t, KeyLess>> index_;
};

struct Range final : Object {
  Range(int64_t from, int64_t to, int64_t by)
      : Object(Kind::kRange), start(from), stop(to), step(by) {}
  int64_t length() const;
  int64_t start;
  int64_t stop;
  int64_t step;
};

}  // namespace polysil::jinja
