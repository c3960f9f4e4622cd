#include "cli/bench_command.h"

#include <utility>

#include "daemon/config.h"

namespace polysil {

void BenchCommand::AddOffline(CLI::App& bench, Status& status) {
  CLI::App* command = bench.add_subcommand("offline", "speed of a model without network");
  AddModelOptions(*command, model_);
  OfflineOptions& rows = offline_.rows;
  command
      ->add_option("--prompt", rows.prompts, "rows of prompts of so many tokens, 512,2048; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--generate", rows.generates, "rows of so many generated tokens, 128; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--depth", rows.depths, "tokens before either, 0,1500,6000")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--streams", rows.streams,
                   "rows of so many streams at once, 1,4,8,16,32; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--stream-prompt", rows.stream_prompt, "tokens of each stream's prompt, 128");
  command->add_option("--repetitions", rows.repetitions, "counted rounds of all rows, 5")
      ->check(CLI::Range(1, 10'000));
  command->add_option("--threads", threads_, "compute threads, as --set cpu.threads");
  command->add_option("--json", offline_.json_path, "write the results there")->type_name("FILE");
  command->add_option("--svg", offline_.svg_path, "draw the roofline there")->type_name("FILE");
  command->callback([this, &status] { status = RunOffline(); });
}

void BenchCommand::Add(CLI::App& app, Status& status) {
  CLI::App* bench = app.add_subcommand("bench", "measure a model, or a server");
  bench->require_subcommand(1);
  AddOffline(*bench, status);
}

Status BenchCommand::RunOffline() {
  if (threads_) model_.settings.push_back(fmt::format("cpu.threads={}", *threads_));
  ASSIGN_OR_RETURN(const v1::Config config, ReadQuietConfig(model_));
  offline_.model_path = model_.path;
  return RunBenchOffline(offline_, config);
}

}  // namespace polysil
