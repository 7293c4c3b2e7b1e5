// SPDX-License-Identifier: Apache-2.0
//
// Perfetto's trace processor in node: open a trace file, ask it SQL.
//
// The engine is made for a browser's worker. It gets the few globals it looks for, the bytes of its
// WebAssembly from disk, and a MessageChannel for the requests that would go to the worker.
//
// By hand: node trace_processor.mjs FOLDER TRACE 'select count(*) from slice'

import fs from 'node:fs';
import path from 'node:path';
import {fileURLToPath, pathToFileURL} from 'node:url';
import vm from 'node:vm';

const CHUNK_BYTES = 32 * 1024 * 1024;
const START_LIMIT_MS = 120_000;
const START_POLL_MS = 200;

// The engine's script, changed in three places: 32-bit memory (node 18 has no other), the module's
// bytes, and its bridge made reachable.
function adaptedScript(folder) {
  const changes = [
    ['this.useMemory64 = hasMemory64Support();', 'this.useMemory64 = false;'],
    ['locateFile: (s) => s,', 'locateFile: (s) => s, wasmBinary: globalThis.gaplessModuleBytes,'],
    ['const wasmBridge = new wasm_bridge_1.WasmBridge();',
     'const wasmBridge = new wasm_bridge_1.WasmBridge(); globalThis.gaplessBridge = wasmBridge;'],
  ];
  let script = fs.readFileSync(path.join(folder, 'engine_bundle.node.js'), 'utf8');
  for (const [before, after] of changes) {
    if (!script.includes(before)) throw new Error(`engine_bundle.node.js has no "${before}"`);
    script = script.replace(before, () => after);
  }
  return script;
}

function defineGlobal(name, value) {
  Object.defineProperty(globalThis, name, {value, writable: true, configurable: true});
}

function prepareGlobals(folder) {
  defineGlobal('self', globalThis);
  defineGlobal('WorkerGlobalScope', class WorkerGlobalScope {});
  defineGlobal('location', {href: `${pathToFileURL(folder).href}/`});
  const bytes = fs.readFileSync(path.join(folder, 'trace_processor.wasm'));
  defineGlobal('gaplessModuleBytes', new Uint8Array(bytes));
}

function makeEngine(EngineBase, port) {
  class NodeEngine extends EngineBase {
    mode = 'WASM';
    id = 'gapless';
    rpcSendRequestBytes(bytes) {
      port.postMessage(bytes);
    }
    [Symbol.dispose ?? Symbol.for('dispose')]() {}
  }
  const engine = new NodeEngine();
  port.onmessage = (message) => {
    if (message.data instanceof Uint8Array) engine.onRpcResponseBytes(message.data);
  };
  return engine;
}

// The module is compiled in the background; requests sent before it is ready are lost.
async function waitUntilReady(bridge) {
  const start = Date.now();
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, START_POLL_MS));
    if (bridge.reqBufferAddr !== 0) return;
    if (Date.now() - start > START_LIMIT_MS) throw new Error('the trace processor does not start');
  }
}

// Integers that a number holds exactly become numbers; the others stay BigInt.
function plainValue(value) {
  if (typeof value !== 'bigint') return value;
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

export class TraceProcessor {
  #engine;
  #channel;

  // `folder` holds the files of fetch_trace_processor. One process can start one.
  static async start(folder) {
    prepareGlobals(folder);
    vm.runInThisContext(adaptedScript(folder), {filename: 'engine_bundle.node.js'});
    const {EngineBase} = await import(pathToFileURL(path.join(folder, 'engine.mjs')).href);
    const processor = new TraceProcessor();
    processor.#channel = new MessageChannel();
    globalThis.gaplessBridge.initialize(processor.#channel.port1);
    processor.#engine = makeEngine(EngineBase, processor.#channel.port2);
    await waitUntilReady(globalThis.gaplessBridge);
    return processor;
  }

  async load(file) {
    const descriptor = fs.openSync(file, 'r');
    try {
      for (;;) {
        const chunk = new Uint8Array(CHUNK_BYTES);
        const size = fs.readSync(descriptor, chunk, 0, CHUNK_BYTES, null);
        if (size === 0) break;
        await this.#engine.parse(chunk.subarray(0, size));
      }
    } finally {
      fs.closeSync(descriptor);
    }
    await this.#engine.notifyEof();
  }

  // Rows as objects, by column name.
  async query(sql) {
    const result = await this.#engine.query(sql);
    const columns = result.columns();
    const rows = [];
    for (const row = result.iter({}); row.valid(); row.next()) {
      rows.push(Object.fromEntries(columns.map((name) => [name, plainValue(row.get(name))])));
    }
    return rows;
  }

  close() {
    this.#channel.port1.close();
    this.#channel.port2.close();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [folder, file, ...queries] = process.argv.slice(2);
  const processor = await TraceProcessor.start(folder);
  await processor.load(file);
  for (const sql of queries) console.table(await processor.query(sql));
  processor.close();
}
