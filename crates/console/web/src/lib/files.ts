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
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
