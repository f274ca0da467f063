// Announcements: a short visible message, and a live region for screen readers.

import { store, useStore } from '../state/store';

interface Message {
  text: string;
  kind: 'done' | 'failed';
  number: number;
}

const message = store<Message | null>(null);
let number = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
const SHOWN = 6000;

export function announce(text: string, kind: Message['kind'] = 'done'): void {
  number += 1;
  message.set({ text, kind, number });
  clearTimeout(timer);
  timer = setTimeout(() => message.set(null), SHOWN);
}

export function Announcements() {
  const shown = useStore(message);
  return (
    <div class="announcements" role={shown?.kind === 'failed' ? 'alert' : 'status'} aria-live="polite">
      {shown !== null && (
        <p key={shown.number} class={`announcement ${shown.kind}`}>
          {shown.text}
        </p>
      )}
    </div>
  );
}
