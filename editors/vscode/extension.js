// The client of `cep lsp`. The server does everything else; commands of its lenses are its own.
"use strict";

const { workspace } = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

exports.activate = async function activate() {
  const [command, ...args] = workspace.getConfiguration("cep").get("command");
  const files = ["**/*.cep", "**/streams.yaml", "**/*.test.yaml"];
  client = new LanguageClient(
    "cep",
    "spark-cep rules",
    { command, args, transport: TransportKind.stdio },
    { documentSelector: files.map((pattern) => ({ scheme: "file", pattern })) }
  );
  await client.start();
};

exports.deactivate = function deactivate() {
  return client === undefined ? undefined : client.stop();
};
