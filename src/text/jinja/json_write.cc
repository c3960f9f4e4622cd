// json.dumps.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

void AppendUnit(std::string* out, uint32_t unit) {
  char buffer[8];
  std::snprintf(buffer, sizeof(buffer), "\\u%04x", unit);
  out->append(buffer);
}

void AppendJsonEscape(std::string* out, std::string_view run, bool ensure_ascii) {
  for (size_t at = 0; at < run.size();) {
    const auto byte = static_cast<unsigned char>(run[at]);
    if (byte >= 0x80 && ensure_ascii) {
      const CodePoint c = DecodeAt(run, at);
      at += c.bytes;
      if (c.value > 0x10FFFF) {
        AppendUnit(out, 0xFFFD);
      } else if (c.value >= 0x10000) {
        AppendUnit(out, 0xD800 + ((c.value - 0x10000) >> 10));
        AppendUnit(out, 0xDC00 + ((c.value - 0x10000) & 0x3FF));
      } else {
        AppendUnit(out, c.value);
      }
      continue;
    }
    ++at;
    switch (byte) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      case '\f':
        out->append("\\f");
        break;
      case '\b':
        out->append("\\b");
        break;
      default:
        if (byte < 0x20) {
          AppendUnit(out, byte);
        } else {
          out->push_back(static_cast<char>(byte));
        }
    }
  }
}

class JsonWriter final {
 public:
  JsonWriter(Runtime& runtime, const JsonFormat& format, Text* out)
      : runtime_(runtime), format_(format), out_(out) {}

  bool Write(const Value& value) {
    if (!runtime_.Step() || !runtime_.Room(out_->size())) return false;
    switch (value.kind()) {
      case Kind::kNone:
        out_->Append("null", false);
        return true;
      case Kind::kBool:
        out_->Append(value.bool_value() ? "true" : "false", value.tainted());
        return true;
      case Kind::kInt:
      case Kind::kBigInt:
        out_->Append(FormatInt(value), value.tainted());
        return true;
      case Kind::kFloat:
        out_->Append(FloatText(value.float_value()), value.tainted());
        return true;
      case Kind::kString:
        return WriteString(value.as<String>().text);
      case Kind::kList:
      case Kind::kTuple:
        return WriteList(value.as<List>().items);
      case Kind::kDict:
        return WriteDict(value.as<Dict>());
      case Kind::kDictView:
      case Kind::kGenerator:
        if (format_.generators) return WriteGenerator(value);
        break;
      default:
        break;
    }
    return runtime_.Fail("Object of type " + TypeName(value) + " is not JSON serializable");
  }

 private:
  static std::string FloatText(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FormatFloat(value);
  }

  bool WriteString(const Text& text) {
    if (!runtime_.StepScan(text.size())) return false;
    out_->Append("\"", false);
    std::string escaped;
    for (size_t at = 0; at < text.size();) {
      bool untrusted = false;
      const size_t end = text.RunEnd(at, &untrusted);
      escaped.clear();
      AppendJsonEscape(&escaped, text.view().substr(at, end - at), format_.ensure_ascii);
      out_->Append(escaped, untrusted);
      at = end;
    }
    out_->Append("\"", false);
    return true;
  }

  bool NewLine() {
    if (!format_.indent) return true;
    out_->Append("\n", false);
    for (int i = 0; i < level_; ++i) {
      if (!runtime_.Reserve(format_.indent->size()) || !runtime_.Room(out_->size())) return false;
      out_->Append(*format_.indent);
    }
    return true;
  }

  bool WriteList(const std::vector<Value>& items) {
    if (items.empty()) {
      out_->Append("[]", false);
      return true;
    }
    const DepthGuard guard(runtime_);
    if (!guard.ok()) return false;
    out_->Append("[", false);
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_->Append(format_.item_separator);
      if (!NewLine() || !Write(items[i])) return false;
    }
    --level_;
    if (!NewLine()) return false;
    out_->Append("]", false);
    return true;
  }

  bool WriteGenerator(const Value& generator) {
    std::vector<Value> items;
    return Collect(runtime_, generator, &items) && WriteList(items);
  }

  bool WriteKey(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return WriteString(key.as<String>().text);
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kBigInt:
      case Kind::kFloat:
        out_->Append("\"", false);
        if (!Write(key)) return false;
        out_->Append("\"", false);
        return true;
      default:
        return runtime_.Fail("keys must be str, int, float, bool or None, not " + TypeName(key));
    }
  }

  bool WriteDict(const Dict& dict) {
    if (dict.entries.empty()) {
      out_->Append("{}", false);
      return true;
    }
    const DepthGuard guard(runtime_);
    if (!guard.ok()) return false;
    std::vector<Dict::Entry> sorted;
    if (format_.sort_keys && !Sort(dict, &sorted)) return false;
    const std::vector<Dict::Entry>& entries = format_.sort_keys ? sorted : dict.entries;
    out_->Append("{", false);
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_->Append(format_.item_separator);
      if (!NewLine() || !WriteKey(entries[i].first)) return false;
      out_->Append(format_.key_separator);
      if (!Write(entries[i].second)) return false;
    }
    --level_;
    if (!NewLine()) return false;
    out_->Append("}", false);
    return true;
  }

  bool Sort(const Dict& dict, std::vector<Dict::Entry>* sorted) {
    std::vector<Value> keys;
    for (const Dict::Entry& entry : dict.entries) keys.push_back(entry.first);
    std::vector<Value> order = keys;
    if (!SortByKeys(runtime_, keys, false, &order)) return false;
    for (const Value& key : order) sorted->emplace_back(key, *dict.Find(key));
    return true;
  }

  Runtime& runtime_;
  const JsonFormat& format_;
  Text* out_;
  int level_ = 0;
};

}  // namespace

bool AppendJson(Runtime& runtime, const Value& value, const JsonFormat& format, Text* out) {
  return JsonWriter(runtime, format, out).Write(value);
}

}  // namespace polysil::jinja
