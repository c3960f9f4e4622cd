#include "model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "model/gguf_checkpoint.h"
#include "model/hf_checkpoint.h"
#include "model/mapped_file.h"

namespace polysil {
namespace {

// Where the model lies: a folder, or one file.
struct Place {
  std::string folder;  // set for the Hugging Face layout
  std::string file;    // set for GGUF
};

StatusOr<Place> Locate(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Place{.folder = path};
  if (path.ends_with("config.json") || path.ends_with(".safetensors")) {
    ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));  // says what is wrong with it
    const std::string parent = std::filesystem::path(path).parent_path().string();
    return Place{.folder = parent.empty() ? "." : parent};
  }
  return Place{.file = path};
}

Status WithPath(const std::string& path, const Status& status) {
  if (status.ok() || Message(status).starts_with(path)) return status;
  return MakeStatus(status.code(), fmt::format("{}: {}", path, Message(status)));
}

StatusOr<Checkpoint::Contents> Read(const Place& place, const CheckpointOptions& options) {
  if (!place.folder.empty()) return ReadHfCheckpoint(place.folder, options);
  ASSIGN_OR_RETURN(auto mapped, MappedFile::Open(place.file));
  mapped->Prefetch();
  return ReadGgufCheckpoint(std::move(mapped), options);
}

StatusOr<CheckpointSummary> Summarize(const Place& place) {
  if (!place.folder.empty()) return SummarizeHfFolder(place.folder);
  ASSIGN_OR_RETURN(const auto mapped, MappedFile::Open(place.file));
  ASSIGN_OR_RETURN(CheckpointSummary summary, SummarizeGguf(*mapped));
  const std::shared_ptr<const MappedFile> files[] = {mapped};
  summary.digest = DigestOf(files);
  return summary;
}

}  // namespace

std::string DigestOf(std::span<const std::shared_ptr<const MappedFile>> files) {
  if (files.size() == 1) return Sha256Hex(files[0]->bytes());
  std::string list;
  for (const auto& file : files) {
    list += fmt::format("{} {}\n", Sha256Hex(file->bytes()), file->name());
  }
  return Sha256Hex(std::as_bytes(std::span(list.data(), list.size())));
}

Checkpoint::Checkpoint(Contents contents) : contents_(std::move(contents)) {}
Checkpoint::~Checkpoint() = default;

std::string Checkpoint::Digest() const {
  return DigestOf(contents_.files);
}

void Checkpoint::DropPages() const {
  for (const std::shared_ptr<const MappedFile>& file : contents_.files) file->DropPages();
}

std::string Checkpoint::WeightTypes() const {
  std::set<std::string_view> names;
  const auto add = [&](const HostTensor& tensor) { names.insert(Info(tensor.dtype).name); };
  add(contents_.weights.embedding);
  add(contents_.weights.output);
  for (const LayerWeights& layer : contents_.weights.layers) {
    for (const HostTensor* tensor : {&layer.q, &layer.k, &layer.v, &layer.attention_output,
                                     &layer.gate, &layer.up, &layer.down}) {
      add(*tensor);
    }
  }
  return fmt::format("{}", fmt::join(names, "+"));
}

StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path,
                                                     const CheckpointOptions& options) {
  ASSIGN_OR_RETURN(const Place place, Locate(path));
  StatusOr<Checkpoint::Contents> contents = Read(place, options);
  if (!contents.ok()) return WithPath(path, contents.status());
  return std::make_unique<Checkpoint>(std::move(*contents));
}

StatusOr<CheckpointSummary> InspectCheckpoint(const std::string& path) {
  ASSIGN_OR_RETURN(const Place place, Locate(path));
  StatusOr<CheckpointSummary> summary = Summarize(place);
  if (!summary.ok()) return WithPath(path, summary.status());
  summary->runnable = OpenCheckpoint(path).status();
  return summary;
}

}  // namespace polysil
