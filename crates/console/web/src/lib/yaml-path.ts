// The place of a line in a text of YAML, for completion by a schema.

/** The keys that lead to a line, by its indent and those of the lines above. Items of lists count as `[]`. */
export function pathAt(lines: string[], row: number, indent: number): string[] {
  const path: string[] = [];
  let limit = indent;
  for (let at = row - 1; at >= 0 && limit > 0; at -= 1) {
    const line = lines[at] ?? '';
    if (line.trim() === '' || line.trim().startsWith('#')) continue;
    const match = /^( *)((?:- +)*)(?:([^\s:#][^:]*):(?:\s.*)?)?$/.exec(line);
    if (match === null) continue;
    const [, spaces = '', dashes = '', key] = match;
    const keyAt = spaces.length + dashes.length;
    if (key !== undefined && keyAt < limit) {
      path.unshift(key);
      limit = keyAt;
    }
    // The key of a list may be as far to the right as its items.
    if (dashes !== '' && spaces.length < limit) limit = spaces.length + 1;
  }
  return path;
}
