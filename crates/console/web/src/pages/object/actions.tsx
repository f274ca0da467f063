// The actions on one object: a menu, and the question before those that change what runs.

import { useState } from 'preact/hooks';
import { create, MERGE, patch } from '../../api/actions';
import { told } from '../../api/client';
import { fullName } from '../../api/discovery';
import { objectPath } from '../../api/paths';
import { type Action, actionsOf, canTrigger, jobOf } from '../../lib/actions';
import { curlOf, kubectlOf, quoted } from '../../lib/commands';
import { jsonText } from '../../lib/json';
import { objectHref } from '../../lib/links';
import { visible } from '../../lib/visible';
import { isFavourite, toggleFavourite } from '../../state/choices';
import { go } from '../../state/router';
import { announce } from '../../ui/announce';
import { copy } from '../../ui/copy';
import { Dialog } from '../../ui/dialog';
import { Menu, type MenuItem } from '../../ui/menu';
import { Problem } from '../../ui/problem';
import type { Rights, Subject } from './object';

/** What the user is asked about. */
export type Asked = 'scale' | 'delete' | Action | null;

const NOT_ALLOWED = 'You may not do this';
const JOBS = { group: 'batch', version: 'v1', plural: 'jobs' };

/** Starts the work of a cron job now, and goes to the job. */
async function trigger({ object, of }: Subject): Promise<void> {
  const ending = Math.random().toString(36).slice(2, 8);
  const name = `${of.name.slice(0, 52)}-${ending}`;
  try {
    await create(JOBS, of.namespace, jobOf(object, name));
    announce(`${name} is started`);
    go(objectHref(JOBS, of.namespace, name));
  } catch (error) {
    announce(told(error), 'failed');
  }
}

interface ActionsProps {
  subject: Subject;
  rights: Rights;
  deleted: boolean;
  past: string;
  onAsk: (asked: Asked) => void;
}

export function ObjectActions({ subject, rights, deleted, past, onAsk }: ActionsProps) {
  const { resource, known, of, object } = subject;
  const name = fullName(resource);
  const isNow = !deleted && past === '';
  const [marked, setMarked] = useState(isFavourite(window.location.pathname));
  const own = actionsOf(name).filter((one) => one.fits(object));
  const scope = of.namespace === '' ? '' : ` -n ${quoted(of.namespace)}`;
  const items: MenuItem[] = [
    ...own.map((one): MenuItem => ({
      text: one.text,
      not: rights.patch && isNow ? undefined : NOT_ALLOWED,
      run: () => onAsk(one),
    })),
    ...(canTrigger(name)
      ? [{ text: 'Trigger now', not: isNow ? undefined : NOT_ALLOWED, run: () => void trigger(subject) }]
      : []),
    {
      text: marked ? 'Remove from favourites' : 'Add to favourites',
      apart: own.length > 0,
      run: () => {
        toggleFavourite({ name: `${of.name} (${object.kind})`, to: window.location.pathname });
        setMarked(!marked);
      },
    },
    { text: 'Copy the name', apart: true, run: () => copy(of.name, 'The name') },
    {
      text: 'Copy as kubectl',
      run: () => copy(`${kubectlOf('get', resource, of.namespace, of.name)} -o yaml`, 'The command'),
    },
    {
      text: 'Copy as curl',
      run: () => copy(curlOf({ path: objectPath(resource, of.namespace, of.name) }), 'The command'),
    },
    ...own.map((one) => ({
      text: `Copy “${one.text}” as kubectl`,
      run: () => copy(`kubectl ${one.kubectl(of.name)}${scope}`, 'The command'),
    })),
  ];
  return (
    <div class="actions">
      {known?.subresources.includes('scale') === true && (
        <Button text="Scale" allowed={rights.scale && isNow} onClick={() => onAsk('scale')} />
      )}
      {known?.verbs.includes('delete') === true && (
        <Button text="Delete" allowed={rights.remove && isNow} danger onClick={() => onAsk('delete')} />
      )}
      <Menu label="Actions" icon="more" items={items} />
    </div>
  );
}

function Button(props: { text: string; allowed: boolean; danger?: boolean; onClick: () => void }) {
  return (
    <button
      type="button"
      class={props.danger === true ? 'danger' : ''}
      disabled={!props.allowed}
      title={props.allowed ? undefined : NOT_ALLOWED}
      onClick={props.onClick}
    >
      {props.text}
    </button>
  );
}

export function ActionDialog(props: { subject: Subject; action: Action; onClose: () => void }) {
  const { subject, action } = props;
  const { resource, of } = subject;
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const body = action.patch(new Date());
  const run = async () => {
    setBusy(true);
    try {
      await patch(resource, of, body);
      announce(`${of.name} ${action.done}`);
      props.onClose();
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  const asCurl = () =>
    copy(
      curlOf({
        method: 'PATCH',
        path: objectPath(resource, of.namespace, of.name),
        contentType: MERGE,
        body: jsonText(body),
      }),
      'The command',
    );
  return (
    <Dialog title={`${action.text} ${of.name}?`} onClose={props.onClose}>
      {error !== null && <Problem error={error} />}
      <p>{action.asks ?? `${subject.object.kind} ${visible(of.name)} is changed.`}</p>
      <div class="buttons">
        <button type="button" onClick={props.onClose}>
          Keep it as it is
        </button>
        <button type="button" class="main" autofocus disabled={busy} onClick={() => void run()}>
          {action.text}
        </button>
        <button type="button" class="quiet" onClick={asCurl}>
          Copy as curl
        </button>
      </div>
    </Dialog>
  );
}
