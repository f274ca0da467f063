// Copies a text, and says so.

import { announce } from './announce';

export function copy(text: string, what: string): void {
  navigator.clipboard.writeText(text).then(
    () => announce(`${what} is copied`),
    () => announce('The browser does not let this page copy', 'failed'),
  );
}
