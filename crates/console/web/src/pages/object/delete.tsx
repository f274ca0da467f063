// Deletes an object. The confirmation shows its identity and the effect on its dependents.

import { useState } from 'preact/hooks';
import { type Propagation, remove } from '../../api/objects';
import { Dialog } from '../../ui/dialog';
import { Problem } from '../../ui/problem';
import type { Subject } from './object';

/** What takes all that is in it along: its name has to be typed. */
const TAKE_ALONG = ['namespaces', 'customresourcedefinitions'];

const WAYS: Record<Propagation, string> = {
  Background: 'is deleted after it',
  Foreground: 'is deleted before it',
  Orphan: 'stays, without an owner',
};

export function DeleteDialog(props: { subject: Subject; onClose: () => void; onDone: () => void }) {
  const { resource, of, object } = props.subject;
  const [how, setHow] = useState<Propagation>('Background');
  const [typed, setTyped] = useState('');
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const takesAlong = TAKE_ALONG.includes(resource.plural);
  const confirm = async () => {
    setBusy(true);
    try {
      await remove(resource, of, object.metadata.uid, how);
      props.onDone();
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return (
    <Dialog title={`Delete ${of.name}?`} onClose={props.onClose}>
      {error !== null && <Problem error={error} />}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void confirm();
        }}
      >
        <p>
          {object.kind} <strong>{of.name}</strong>
          {of.namespace !== '' && ` in ${of.namespace}`} will be deleted. This can't be undone.
        </p>
        <label>
          What it owns{' '}
          <select value={how} onChange={(event) => setHow(event.currentTarget.value as Propagation)}>
            {(Object.keys(WAYS) as Propagation[]).map((one) => (
              <option key={one} value={one}>
                {WAYS[one]}
              </option>
            ))}
          </select>
        </label>
        {takesAlong && (
          <label>
            All that is in it goes too. Type its name:{' '}
            <input value={typed} autocomplete="off" onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        )}
        <div class="buttons">
          <button type="button" autofocus onClick={props.onClose}>
            Keep it
          </button>
          <button type="submit" class="danger" disabled={busy || (takesAlong && typed !== of.name)}>
            Delete
          </button>
        </div>
      </form>
    </Dialog>
  );
}
