// Builds the console into the directory that is named, or else into ../assets, which the server embeds.
//
// The names of files stay the same from build to build, so that changes can be reviewed; the server puts a hash into their paths.
import { build } from 'esbuild';
import { copyFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants } from 'node:zlib';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, '..', 'assets');

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
const options = {
  absWorkingDir: here,
  outdir: out,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'inline',
  charset: 'utf8',
  jsx: 'automatic',
  jsxImportSource: 'preact',
};
/** The terminal is a file of its own, built with another document. */
const apart = {
  name: 'apart',
  setup: (building) => building.onResolve({ filter: /\/terminal$/ }, () => ({ path: './terminal.js', external: true })),
};
await build({
  ...options,
  entryPoints: { app: 'src/main.tsx', pages: 'src/pages.ts', editor: 'src/editor.ts', yaml: 'src/yaml.ts' },
  splitting: true,
  // What the first page and the others share is one file.
  chunkNames: 'shared',
  plugins: [apart],
});
await build({
  ...options,
  entryPoints: { terminal: 'src/terminal.ts' },
  define: { document: 'pageDocument', 'window.document': 'pageDocument' },
  inject: ['src/lib/page-document.ts'],
});
await build({ absWorkingDir: here, entryPoints: ['src/app.css'], outdir: out, minify: true, bundle: true });
// Brotli is smaller than gzip, and too slow for a server to make.
const { BROTLI_PARAM_MODE, BROTLI_MODE_TEXT, BROTLI_PARAM_QUALITY, BROTLI_PARAM_SIZE_HINT } = constants;
for (const name of ['app.css', 'app.js', 'editor.js', 'pages.js', 'shared.js', 'terminal.js', 'yaml.js']) {
  const content = await readFile(join(out, name));
  const params = {
    [BROTLI_PARAM_MODE]: BROTLI_MODE_TEXT,
    [BROTLI_PARAM_QUALITY]: 11,
    [BROTLI_PARAM_SIZE_HINT]: content.length,
  };
  await writeFile(join(out, `${name}.br`), brotliCompressSync(content, { params }));
}
for (const file of ['index.html', 'icon.svg']) await copyFile(join(here, 'src', file), join(out, file));
// What is in the files by others, whose licences ask to be told with them.
const licensed = [
  'preact',
  'yaml',
  ...['autocomplete', 'commands', 'lang-yaml', 'language', 'search', 'state', 'view'].map(
    (name) => `@codemirror/${name}`,
  ),
  ...['common', 'highlight', 'lr', 'yaml'].map((name) => `@lezer/${name}`),
  '@marijn/find-cluster-break',
  'crelt',
  'style-mod',
  'w3c-keyname',
  '@xterm/xterm',
];
const told = licensed.map(async (name) => {
  const text = await readFile(join(here, 'node_modules', name, 'LICENSE'), 'utf8');
  return `${name}\n\n${text.trim()}\n`;
});
await writeFile(join(out, 'licenses.txt'), (await Promise.all(told)).join('\n\n'));
