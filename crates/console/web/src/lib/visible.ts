// Escapes characters that are invisible or reorder other characters.
//
// With U+202E in it, a name looks like another name. This could also hide a change in a difference that the user
// approves.

const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
}

export function visible(text: string): string {
  return text.replace(UNSEEN, escaped);
}

/** The escapes of a text with the lines that they are in, at most so many. */
export function unseenIn(text: string, most: number): string[] {
  const found: string[] = [];
  text.split('\n').forEach((line, at) => {
    for (const [character] of line.matchAll(UNSEEN)) {
      if (found.length < most) found.push(`line ${at + 1}: ${escaped(character)}`);
    }
  });
  return found;
}
