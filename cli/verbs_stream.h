// Verbs on streams of rows: `ttr regress`, `ttr predict`, `ttr serve`.
#pragma once

#include "regress.h"
#include "serve.h"
#include "verbs.h"

namespace ttr::cli {

struct RegressVerb : Verb {
  RegressOptions options;
  CLI::App* command = nullptr;

  void declare(CLI::App& app) override {
    command = app.add_subcommand("regress", "Online regression on a stream: predict each row, then learn it");
    command->add_option("file", options.file, "CSV or .npy file, or - for a live stream; none: the built-in process");
    command->add_option("--keys", options.keys, "key columns, by name or number from 1 (default: all but the values)")
        ->delimiter(',')
        ->allow_extra_args(false);
    command->add_option("--values", options.values, "value columns (default: the last one)")
        ->delimiter(',')
        ->allow_extra_args(false);
    command
        ->add_option(
            "--layer", options.layers,
            "layer name, name:setting=value,... or a recipe, or mix: an online aggregation of the others; repeat "
            "to compare several (default: a few layers and their mix)")
        ->take_all()
        ->allow_extra_args(false)
        ->delimiter('\0');
    command->add_flag("--tune", options.tune,
                      "try several settings of every layer side by side, weighted by their past errors");
    command->add_flag("--classify", options.classify,
                      "the value is a class, a word or a number: probabilities, log loss, accuracy, AUC");
    command->add_option("--classes", options.classes, "with --classify: all classes (default: those in the file)")
        ->delimiter(',')
        ->allow_extra_args(false);
    command->add_flag("--coefficients", options.coefficients,
                      "show the coefficients of linear layers after the last row, in the report over time");
    command->add_option("--coefficients-out", options.coefficients_out,
                        "write them over time, .csv; with --group the last ones of every group");
    command->add_option("--group", options.group,
                        "a column, such as station: every word in it has a memory of its own");
    command->add_option("--weights", options.weights, "a column: what a row counts, in the fit and in the score");
    command->add_flag("--detect", options.detect,
                      "anomaly scores of rows, and the rows from which on errors are larger (drift)");
    command->add_flag("--watch", options.watch, "a plot of the last rows in the terminal while it runs");
    command->add_flag("--raw", options.raw,
                      "keys and values as they are: no intercept, no scaling by mean and deviation");
    command->add_flag("--bias", options.bias, "with --raw: add a key that is always 1");
    command->add_flag("--standardize", options.standardize,
                      "with --raw: shift and scale by the mean and deviation of earlier rows");
    const auto columns = [&](const char* name, std::vector<std::string>& list, const char* meaning) {
      command->add_option(name, list, meaning)->delimiter(',')->allow_extra_args(false);
    };
    columns("--with", options.with, "further key columns, not lagged, beside --lags");
    columns("--dates", options.dates, "columns of dates (ISO, or seconds since 1970): calendar keys");
    columns("--categories", options.categories, "columns of words: a key per word, beyond the slots by a hash");
    command->add_option("--category-slots", options.category_slots, "keys per column of words")
        ->capture_default_str();
    command->add_option("--missing", options.missing, "missing keys: error, skip, last, mean or indicator")
        ->check(CLI::IsMember({"error", "skip", "last", "mean", "indicator"}));
    command->add_option("--lags", options.lags_text,
                        "keys = the last N rows, or these (1,12,13 or 1-3,12); value = the next row");
    command->add_flag("--diff", options.differences, "with --lags: learn differences of rows");
    command->add_option("--horizon", options.horizon, "predict the value this many rows later")
        ->check(CLI::NonNegativeNumber);
    command->add_flag("--iterate", options.iterate,
                      "with --horizon: in steps of one row, each answer a key of the next");
    command->add_option("--id", options.id,
                        "a column of names: a later row with the same one brings the value of a question");
    command
        ->add_option("--delay", options.delay,
                     "so many further rows are predicted before the value of a row is known")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--interval", options.interval,
                        "prediction intervals of this level, such as 0.9, for layers with a covariance");
    command->add_option("--warmup", options.warmup, "first rows that are not scored (default: keys + 1)")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--season", options.season,
                        "rows of a season, such as 12: compare with the value one season before");
    command->add_option("--fourier", options.fourier, "with --season: so many sines and cosines of it are keys");
    command->add_option("--window", options.window, "rows per window of the windowed loss");
    command->add_option("--out", options.out, "write predictions, .csv or .npy");
    command->add_option("--report", options.report, "write a report, one self-contained HTML file");
    command->add_option("--svg", options.svg, "write only the plot of the losses");
    command->add_option("--on-bad", options.on_bad, "error or skip: what to do with a bad row")
        ->check(CLI::IsMember({"error", "skip"}));
    command->add_option("--header", options.header, "auto, yes or no: whether the first line names the columns")
        ->check(CLI::IsMember({"auto", "yes", "no"}));
    command->add_option("--save", options.save, "write all that was learned to this file, a model");
    command->add_option("--load", options.load, "go on from a model, with the options it was made with");
    command->add_option("--checkpoint-every", options.checkpoint_every, "with --save: save every so many rows");
    command->add_flag("--resume", options.resume,
                      "with --load: the file is the same; go on after the rows that the model has seen");
    command->add_flag("--json", options.json, "print the summary as JSON");
    command->add_option("--seeds", options.seeds, "built-in process: number of runs")->capture_default_str();
    command->add_option("--time", options.time, "built-in process: length of a run")->capture_default_str();
    command->add_option("--seed", options.seed, "built-in process: first seed")->capture_default_str();
    command->add_option("--covariance", options.covariance, "built-in process: covariance of the noise")
        ->check(CLI::IsMember({"equicorrelation", "toeplitz", "wishart", "identity"}))
        ->capture_default_str();
    command
        ->add_option("--order", options.order,
                     "built-in process: paper (0.9, then 0.999) or slides (0.999, then 0.9)")
        ->check(CLI::IsMember({"paper", "slides"}))
        ->capture_default_str();
    command->add_option("--threads", options.threads, "built-in process: threads; 0 = all cores");
  }
  std::optional<int> run(const std::string& text) override {
    if (!*command) return {};
    options.command = text;
    for (const char* name : {"--seeds", "--time", "--seed", "--covariance", "--order"})
      if (command->count(name) > 0) options.process_options.emplace_back(name);
    return run_regress(options);
  }
};

struct PredictVerb : Verb {
  RegressOptions options;
  CLI::App* command = nullptr;

  void declare(CLI::App& app) override {
    options.predict = true;
    command = app.add_subcommand("predict", "Predict rows with a model of `ttr regress --save`; learn nothing");
    command->add_option("model", options.load, "a file that `ttr regress --save` has written")->required();
    command->add_option("file", options.file, "CSV or .npy file, or - for a live stream")->required();
    command->add_option("--out", options.out, "write predictions, .csv or .npy (default: standard output)");
    command->add_option("--report", options.report, "write a report, one self-contained HTML file");
    command->add_option("--on-bad", options.on_bad, "error or skip: what to do with a bad row")
        ->check(CLI::IsMember({"error", "skip"}));
    command->add_option("--header", options.header, "auto, yes or no: whether the first line names the columns")
        ->check(CLI::IsMember({"auto", "yes", "no"}));
    command->add_flag("--json", options.json, "print the summary as JSON");
  }
  std::optional<int> run(const std::string& text) override {
    if (!*command) return {};
    options.command = text;
    return run_regress(options);
  }
};

struct ServeVerb : Verb {
  ServeOptions options;
  CLI::App* command = nullptr;

  void declare(CLI::App& app) override {
    command = app.add_subcommand("serve", "Serve models over HTTP: they learn and predict rows of JSON as they come");
    const auto option = [&](const char* name, auto& value, const char* meaning) {
      command->add_option(name, value, meaning)->capture_default_str();
    };
    command->add_option("folder", options.folder, "where the models are and are saved; made if need be")->required();
    option("--host", options.host, "address to listen on; others than loopback need --token-file");
    option("--port", options.port, "0: any that is free");
    command->add_option("--token-file", options.token_file,
                        "a file whose first line every request must send as Authorization: Bearer TOKEN");
    command->add_flag("--sync", options.sync,
                      "acknowledged rows survive a power cut, not only the end of the process");
    option("--threads", options.threads, "0: as many as the machine has");
    option("--max-body", options.max_body, "bytes of a request, and of a line");
    option("--max-connections", options.max_connections, "more are refused with 503");
    option("--max-models", options.max_models, "more are refused with 507");
    option("--max-log", options.max_log, "bytes of the log before all models are saved and it is begun anew");
    option("--timeout", options.timeout, "seconds in which a request must arrive, and its response must leave");
    option("--idle-timeout", options.idle_timeout, "seconds between requests, and between lines of a stream");
    command->add_flag("--json", options.json, "print the address as JSON");
#ifdef TTR_WITH_LANGUAGE
    options.open_text = open_text_service;
    command->add_option("--model", options.text.model,
                        "a published language model: a file or folder; serves /v1/completions");
    command->add_option("--tokenizer", options.text.tokenizer, "of that model, if it lies elsewhere");
    option("--slots", options.text.slots, "texts of that model that go on at the same time");
    option("--queue", options.text.queue, "requests that wait for a slot; more are refused with 503");
    option("--context", options.text.context, "most tokens of a text, its prompt with it");
    option("--max-tokens", options.text.most_tokens, "most tokens of an answer");
    option("--activations", options.text.activations,
           "of that model: exact, or rounded to the type of the weights, where that is bf16, Q8_0 or Q4_0");
    option("--model-threads", options.text.threads, "of that model; 0: as many as the machine has");
#endif
    command->footer(R"(Paths:
  PUT    /models/NAME            make a model: {"keys": ["x"], "values": ["y"], "layers": ["nlms"]}, options of ttr regress
  POST   /models/NAME/learn      {"x": 1.5, "y": 2}: the prediction, then the row is learned; a list of rows; or lines of
                                 JSON (Content-Type: application/x-ndjson), answered one by one as they come
  POST   /models/NAME/predict    the same without learning
  GET    /models/NAME            how good it is; DELETE deletes it; GET /models lists all
  POST   /models/NAME/save       writes it to the folder now; POST /save all of them
  GET    /metrics, /health       for Prometheus, and whether it is alive
  POST   /v1/completions         with --model, as OpenAI has it: {"prompt": "Once upon", "max_tokens": 64, "stream": true}
Example:
  ttr serve models &
  curl -X PUT localhost:8321/models/demo -d '{"keys": ["x"], "values": ["y"], "layers": ["rls"]}'
  curl localhost:8321/models/demo/learn -d '{"x": 1, "y": 2.1}'
  curl localhost:8321/models/demo/predict -d '{"x": 3}')");
  }
  std::optional<int> run(const std::string&) override {
    if (!*command) return {};
    return run_serve(options);
  }
};

}  // namespace ttr::cli
