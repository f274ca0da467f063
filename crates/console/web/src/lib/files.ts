// Files that the user takes away: what is seen, as CSV, JSON or YAML.

/** A field of CSV (RFC 4180). A text that a table program would take as a formula begins with a quote. */
function field(text: string): string {
  const harmless = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

export function csvOf(rows: string[][]): string {
  return rows.map((row) => `${row.map(field).join(',')}\r\n`).join('');
}

/** Gives a file to the browser, which saves it. */
export function save(name: string, type: string, text: string): void {
  give(name, new Blob([text], { type }));
}

/** Saves bytes of others under a type that no program opens by itself. */
export function saveBytes(name: string, bytes: Uint8Array): void {
  give(name, new Blob([bytes.slice()], { type: 'application/octet-stream' }));
}

function give(name: string, content: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
