// Opens a resource by a few letters of its name.

import { useMemo, useState } from 'preact/hooks';
import { discovery, fullName, type Resource } from '../api/discovery';
import { groupSegment } from '../pages/list/query';
import { go, href, place } from '../state/router';
import { useStore } from '../state/store';
import { Dialog } from './dialog';

const SHOWN = 12;

/** How well a resource fits what was typed; 0 where it does not. */
function fit(resource: Resource, text: string): number {
  const name = fullName(resource);
  if (resource.shortNames.includes(text)) return 6;
  if (resource.plural === text) return 5;
  if (resource.plural.startsWith(text)) return 4;
  if (name.includes(text) || resource.kind.toLowerCase().includes(text)) return 2;
  let at = 0;
  for (const letter of name) if (letter === text[at]) at += 1;
  return at === text.length ? 1 : 0;
}

/** The list of a resource, in the namespace that was chosen where it has namespaces. */
export function resourceHref(resource: Resource): string {
  const namespace = resource.namespaced ? (place.get().params.get('ns') ?? '') : '';
  return href(['r', groupSegment(resource.group), resource.version, resource.plural], { ns: namespace });
}

export function Palette({ onClose }: { onClose: () => void }) {
  const { resources } = useStore(discovery);
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const found = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    const listed = resources.filter((one) => one.verbs.includes('list'));
    const rated = listed.map((one) => ({ one, rate: fit(one, wanted) * 10 + (one.preferred ? 5 : 0) }));
    const fitting = rated.filter(({ rate }) => rate >= 10);
    return fitting
      .sort((a, b) => b.rate - a.rate || a.one.plural.length - b.one.plural.length)
      .slice(0, SHOWN)
      .map(({ one }) => one);
  }, [resources, text]);
  const open = (resource: Resource | undefined) => {
    if (resource === undefined) return;
    onClose();
    go(resourceHref(resource));
  };
  return (
    <Dialog title="Go to a resource" onClose={onClose}>
      <input
        type="text"
        role="combobox"
        aria-label="Resource"
        aria-expanded={true}
        aria-controls="palette"
        aria-activedescendant={found.length > 0 ? `palette-${chosen}` : undefined}
        placeholder="pods, deploy, crd…"
        spellcheck={false}
        autocomplete="off"
        autofocus
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={(event) => {
          if (event.key === 'ArrowDown') setChosen(Math.min(chosen + 1, found.length - 1));
          else if (event.key === 'ArrowUp') setChosen(Math.max(chosen - 1, 0));
          else if (event.key === 'Enter') open(found[chosen]);
          else return;
          event.preventDefault();
        }}
      />
      <ul id="palette" class="palette" role="listbox" aria-label="Resources">
        {found.map((one, at) => (
          <li
            key={`${fullName(one)}/${one.version}`}
            id={`palette-${at}`}
            role="option"
            aria-selected={at === chosen}
            onClick={() => open(one)}
          >
            <strong>{one.plural}</strong>{' '}
            <small>{one.group === '' ? one.version : `${one.group}/${one.version}`}</small>
            {one.shortNames.length > 0 && <code>{one.shortNames.join(' ')}</code>}
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
