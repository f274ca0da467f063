// Bundles the tests beside this file, as the console itself is bundled, and runs them in Node.js.
import { spawnSync } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const out = await mkdtemp(join(tmpdir(), 'keelson-console-'));
try {
  const files = (await readdir(here)).filter((name) => name.endsWith('.test.ts'));
  const entryPoints = files.map((name) => join(here, name));
  await build({
    entryPoints,
    outdir: out,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    format: 'esm',
    external: ['node:*'],
  });
  const built = files.map((name) => join(out, name.replace(/ts$/, 'mjs')));
  const { status } = spawnSync(process.execPath, ['--test', '--test-reporter=dot', ...built], { stdio: 'inherit' });
  process.exitCode = status ?? 1;
} finally {
  await rm(out, { recursive: true, force: true });
}
