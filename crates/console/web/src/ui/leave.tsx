// The confirmation before a page with unsaved text is left.

import { leaving } from '../state/router';
import { useStore } from '../state/store';
import { Dialog } from './dialog';

/** Shown while a step away from the page waits for an answer. */
export function LeaveQuestion() {
  const asked = useStore(leaving);
  if (asked === null) return null;
  const stay = () => leaving.set(null);
  const goOn = () => {
    leaving.set(null);
    asked.goOn();
  };
  return (
    <Dialog title="Leave without saving?" onClose={stay}>
      <p>
        {asked.loses
          ? 'What you wrote is not saved, and is thrown away when you log out.'
          : 'What you wrote is not saved. It is kept as a draft in this tab until you log out, and is there when you edit the object again.'}
      </p>
      <div class="buttons">
        <button type="button" autofocus onClick={stay}>
          Stay
        </button>
        <button type="button" class={asked.loses ? 'danger' : ''} onClick={goOn}>
          {asked.loses ? 'Throw it away and log out' : 'Leave, and keep the draft'}
        </button>
      </div>
    </Dialog>
  );
}
