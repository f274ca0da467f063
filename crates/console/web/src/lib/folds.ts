// Computes which lines of YAML belong to the line above them, for folding.

export interface Line {
  text: string;
  indent: number;
  /** The line behind the last one that belongs to this one; its own number plus one where none does. */
  end: number;
}

export function lines(yaml: string): Line[] {
  const texts = yaml.replace(/\n$/, '').split('\n');
  const found = texts.map((text): Line => ({ text, indent: text.search(/\S|$/), end: 0 }));
  const isItem = (line: Line) => line.text.startsWith('- ', line.indent) || line.text.trim() === '-';
  found.forEach((line, at) => {
    const key = /^\s*(?:- )*[^\s].*:(?: [|>][-+0-9]*)?$/.test(line.text);
    let end = at + 1;
    for (; end < found.length; end += 1) {
      const next = found[end];
      if (next === undefined) break;
      const isEmpty = next.text.trim() === '';
      const below = next.indent > line.indent || (key && !isItem(line) && next.indent === line.indent && isItem(next));
      if (!isEmpty && !below) break;
    }
    line.end = end;
  });
  return found;
}

/** The parts of a line, for colours: what is before the key, the key with its colon, and the value. */
export function parts(text: string): [string, string, string] {
  const match = /^(\s*(?:- )*)((?:"[^"]*"|'[^']*'|[^\s'"#-][^:]*|-[^\s:][^:]*):(?=\s|$))?(.*)$/.exec(text);
  return [match?.[1] ?? '', match?.[2] ?? '', match?.[3] ?? text];
}
