// Between protobuf messages and text calls. Pure functions; ranges are the session's.
#pragma once

#include "polysil/base/status.h"
#include "polysil/engine/engine.h"
#include "polysil/v1/admin.pb.h"
#include "polysil/v1/inference.pb.h"
#include "session/call_ledger.h"
#include "session/text_call.h"

namespace polysil {

// INVALID_ARGUMENT for what no TextCall can say: no prompt, JSON that does not parse.
StatusOr<TextCall> ReadGenerateRequest(const v1::GenerateRequest& request);
StatusOr<TextPrompt> ReadPrompt(const v1::Prompt& prompt);
PromptEncoding ReadEncoding(const v1::Prompt& prompt);

v1::GenerateResponse WriteDelta(const TextDelta& delta, const v1::GenerateRequest& request);
v1::KvEventBatch WriteKvEvents(const KvEventBatch& batch);
v1::GenerateResponse WriteUsage(const TextUsage& usage, const CallLatency& latency);
v1::Stats WriteStats(const EngineStats& stats);

}  // namespace polysil
