// Actions on the selected rows of a list: labels, deletion, and those of the resource, with progress and failures.

import { useState } from 'preact/hooks';
import { forEach, patch, type Progress } from '../../api/actions';
import { told } from '../../api/client';
import { fullName, type Resource } from '../../api/discovery';
import { remove, scale } from '../../api/objects';
import type { ObjectMeta } from '../../api/types';
import { type Action, actionsOf, labelsIn } from '../../lib/actions';
import { replicasOf } from '../../lib/replicas';
import { counted } from '../../lib/time';
import { visible } from '../../lib/visible';
import { announce } from '../../ui/announce';
import { Dialog } from '../../ui/dialog';
import { Icon } from '../../ui/icon';
import { showNewest } from './live';
import { place } from '../../state/router';

export type Chosen = ObjectMeta;

/** How many names are listed in a question. */
const NAMED = 12;

interface Task {
  title: string;
  button: string;
  done: string;
  danger?: boolean;
  /** A text that the user has to give, with its meaning. */
  field?: { label: string; hint: string; check: (text: string) => string };
  /** What has to be typed before more is destroyed than is seen. */
  typed?: string;
  note?: string;
  run: (one: Chosen, text: string) => Promise<void>;
}

function tasksOf(resource: Resource): Task[] {
  const nameOf = (one: Chosen) => ({ namespace: one.namespace ?? '', name: one.name });
  const tasks: Task[] = actionsOf(fullName(resource)).map((action: Action) => ({
    title: action.text,
    button: action.text,
    done: action.done,
    ...(action.asks === undefined ? {} : { note: action.asks }),
    run: (one) => patch(resource, nameOf(one), action.patch(new Date())),
  }));
  if (resource.subresources.includes('scale')) {
    tasks.push({
      title: 'Scale',
      button: 'Scale',
      done: 'is scaled',
      field: {
        label: 'Replicas of each',
        hint: 'A whole number. With 0 nothing of them runs.',
        check: (text) => (replicasOf(text) === null ? 'A whole number is wanted.' : ''),
      },
      run: (one, text) => scale(resource, nameOf(one), replicasOf(text) ?? 1),
    });
  }
  tasks.push({
    title: 'Label',
    button: 'Label',
    done: 'is labelled',
    field: {
      label: 'Labels',
      hint: 'tier=web sets a label, tier- removes it.',
      check: (text) => (labelsIn(text) === null ? 'Labels are given as name=value, or name- to remove one.' : ''),
    },
    run: (one, text) => patch(resource, nameOf(one), { metadata: { labels: labelsIn(text) ?? {} } }),
  });
  return tasks;
}

function deletion(resource: Resource, count: number): Task {
  const takesAlong = ['namespaces', 'customresourcedefinitions'].includes(resource.plural);
  return {
    title: 'Delete',
    button: `Delete ${counted(count)}`,
    done: 'is deleted',
    danger: true,
    note: "This can't be undone.",
    ...(takesAlong || count > NAMED ? { typed: String(count) } : {}),
    run: (one) => remove(resource, { namespace: one.namespace ?? '', name: one.name }, one.uid, 'Background'),
  };
}

export function BulkBar(props: { resource: Resource; chosen: Chosen[]; onClear: () => void }) {
  const { resource, chosen } = props;
  const [task, setTask] = useState<Task | null>(null);
  const may = (verb: string) => resource.verbs.includes(verb);
  return (
    <div class="bulk" role="region" aria-label="Selected rows">
      <strong>{counted(chosen.length)} selected</strong>
      {may('patch') &&
        tasksOf(resource).map((one) => (
          <button type="button" key={one.title} onClick={() => setTask(one)}>
            {one.title}
          </button>
        ))}
      {may('delete') && (
        <button type="button" class="danger" onClick={() => setTask(deletion(resource, chosen.length))}>
          Delete
        </button>
      )}
      <button type="button" class="quiet" aria-label="Select none" title="Select none" onClick={props.onClear}>
        <Icon name="cross" />
      </button>
      {task !== null && (
        <TaskDialog
          task={task}
          kind={resource.kind}
          chosen={chosen}
          onClose={(finished) => {
            setTask(null);
            if (!finished) return;
            props.onClear();
            showNewest(place.get());
          }}
        />
      )}
    </div>
  );
}

interface TaskProps {
  task: Task;
  kind: string;
  chosen: Chosen[];
  onClose: (finished: boolean) => void;
}

function TaskDialog({ task, kind, chosen, onClose }: TaskProps) {
  const [text, setText] = useState('');
  const [typed, setTyped] = useState('');
  const [progress, setProgress] = useState<Progress | null>(null);
  const [finished, setFinished] = useState(false);
  const wrong = task.field === undefined ? '' : task.field.check(text);
  const isZero = task.title === 'Scale' && replicasOf(text) === 0;
  const asksZero = isZero && typed !== '0';
  const ready = wrong === '' && (task.typed === undefined || typed === task.typed) && !asksZero;
  const start = async () => {
    if (!ready || progress !== null) return;
    const all = chosen.map((one) => ({ ...one, namespace: one.namespace ?? '' }));
    setProgress({ done: 0, all: all.length, failed: [] });
    const end = await forEach(all, (one) => task.run(one, text), setProgress);
    setFinished(true);
    if (end.failed.length > 0) return;
    announce(chosen.length === 1 ? `${chosen[0]?.name ?? ''} ${task.done}` : `${counted(end.done)} done`);
    onClose(true);
  };
  return (
    <Dialog title={`${task.title} ${counted(chosen.length)} × ${kind}`} onClose={() => onClose(finished)}>
      <ul class="named">
        {chosen.slice(0, NAMED).map((one) => (
          <li key={one.uid}>{visible(one.namespace === undefined ? one.name : `${one.namespace}/${one.name}`)}</li>
        ))}
        {chosen.length > NAMED && <li>and {counted(chosen.length - NAMED)} more</li>}
      </ul>
      {task.note !== undefined && <p>{task.note}</p>}
      <form
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        {task.field !== undefined && (
          <label class="stacked">
            {task.field.label}
            <input
              type="text"
              autofocus
              spellcheck={false}
              autocomplete="off"
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
            />
            <small>{text === '' || wrong === '' ? task.field.hint : wrong}</small>
          </label>
        )}
        {isZero && (
          <label class="stacked">
            With 0 replicas nothing of them runs. Type 0 once more to have it so.
            <input
              type="text"
              autocomplete="off"
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </label>
        )}
        {task.typed !== undefined && (
          <label class="stacked">
            Type {task.typed} to confirm the number
            <input
              type="text"
              autocomplete="off"
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </label>
        )}
        {progress !== null && (
          <p role="status">
            <progress value={progress.done} max={progress.all} aria-label="Done" /> {counted(progress.done)} of{' '}
            {counted(progress.all)}
          </p>
        )}
        {progress !== null && progress.failed.length > 0 && (
          <div class="problem" role="alert">
            <h2>{counted(progress.failed.length)} failed</h2>
            <ul>
              {progress.failed.slice(0, NAMED).map(({ name, error }) => (
                <li key={name}>
                  <strong>{visible(name)}</strong>: {visible(told(error))}
                </li>
              ))}
            </ul>
          </div>
        )}
        <div class="buttons">
          <button type="button" autofocus={task.field === undefined} onClick={() => onClose(finished)}>
            {finished ? 'Close' : 'Keep as it is'}
          </button>
          {!finished && (
            <button
              type="submit"
              class={task.danger === true ? 'danger' : 'main'}
              disabled={!ready || progress !== null}
            >
              {task.button}
            </button>
          )}
        </div>
      </form>
    </Dialog>
  );
}
