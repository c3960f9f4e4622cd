// A Checkpoint from one GGUF file: structure (gguf.h), spec (gguf_spec.h), weights by role,
// vocabulary and chat templates. Pure functions of a mapped file.
#pragma once

#include <memory>
#include <vector>

#include "model/checkpoint.h"
#include "model/gguf.h"
#include "model/mapped_file.h"
#include "polysil/base/status.h"

namespace polysil {

bool LooksLikeGguf(std::span<const std::byte> bytes);

StatusOr<Checkpoint::Contents> ReadGgufCheckpoint(std::shared_ptr<const MappedFile> mapped,
                                                  const CheckpointOptions& options);
// All but digest and runnable.
StatusOr<CheckpointSummary> SummarizeGguf(const MappedFile& mapped);

// tokenizer.ggml.*, checked: see GgufVocabulary.
StatusOr<GgufVocabulary> ReadGgufVocabulary(const GgufFile& file);
StatusOr<std::vector<ChatTemplateSource>> ReadGgufChatTemplates(const GgufFile& file);

}  // namespace polysil
