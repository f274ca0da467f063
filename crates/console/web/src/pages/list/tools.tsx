// Tools for a list as a whole: columns, views that are kept and shared, files, and commands for a shell.

import { useEffect, useState } from 'preact/hooks';
import { fullName, type Resource } from '../../api/discovery';
import { type ListQuery, type Page, pathOf, selection } from '../../api/lists';
import { getJson, told } from '../../api/client';
import { session } from '../../api/session';
import { shareView } from '../../api/views';
import type { ObjectList } from '../../api/types';
import { curlOf, kubectlOfList, rawPath } from '../../lib/commands';
import { csvOf, save } from '../../lib/files';
import { jsonText } from '../../lib/json';
import { stepsOf } from '../../lib/paths';
import { yamlOf } from '../../lib/text';
import { visible } from '../../lib/visible';
import { choices, chooseColumns, choose, columnsFor, isFavourite, toggleFavourite } from '../../state/choices';
import { go, href, type Place, show, withParams } from '../../state/router';
import { store, useStore } from '../../state/store';
import { linkOf } from '../../state/views';
import { announce } from '../../ui/announce';
import { copy } from '../../ui/copy';
import { Dialog } from '../../ui/dialog';
import { Menu, type MenuItem } from '../../ui/menu';
import { Problem } from '../../ui/problem';
import type { Extras } from './extras';
import { cellText, shownColumns } from './table';

export interface ToolsProps {
  place: Place;
  query: ListQuery;
  page: Page | null;
  known: Resource | undefined;
  wide: boolean;
  extras: Extras;
  withNamespace: boolean;
}

function fileName(query: ListQuery, ending: string): string {
  const where = query.namespaces.length === 0 ? '' : `-${query.namespaces.join('-')}`;
  return `${query.collection.plural}${where}.${ending}`;
}

function exportCsv({ query, page, known, wide, extras, withNamespace }: ToolsProps): void {
  if (page === null) return;
  const choice = columnsFor(known === undefined ? '' : `${known.plural}.${known.group}`);
  const columns = shownColumns(page, wide, choice, known?.plural === 'pods' && known.group === '');
  const head = [...(withNamespace ? ['Namespace'] : []), ...columns.map(({ column }) => column.name)];
  const rows = page.rows.map((row) => [
    ...(withNamespace ? [row.object.metadata.namespace ?? ''] : []),
    ...columns.map((shown) => cellText(row, shown, extras)),
  ]);
  save(fileName(query, 'csv'), 'text/csv', csvOf([head, ...rows]));
}

/** The objects of the page as they are. */
async function objectsOf(query: ListQuery, page: Page): Promise<ObjectList> {
  const params = selection({ ...query, revision: page.revision, at: '' });
  params.set('limit', String(query.limit));
  if (page.extended) {
    params.set('keelson.io/page', String(query.page));
    params.set('keelson.io/omitManagedFields', 'true');
    if (query.sort !== '') params.set('keelson.io/sortBy', query.sort);
  }
  return getJson<ObjectList>(`${pathOf(query)}?${params.toString()}`);
}

async function exportObjects({ query, page }: ToolsProps, ending: 'json' | 'yaml'): Promise<void> {
  if (page === null) return;
  try {
    const list = await objectsOf(query, page);
    const text = ending === 'json' ? jsonText(list) : await yamlOf(list);
    save(fileName(query, ending), ending === 'json' ? 'application/json' : 'application/yaml', text);
  } catch (error) {
    announce(told(error), 'failed');
  }
}

/** The dialog over the list; a key opens that of columns too. */
export const listDialog = store<'columns' | 'group' | 'view' | null>(null);

export function ToolsMenu(props: ToolsProps) {
  const { place, query, known } = props;
  const { density } = useStore(choices);
  const dialog = useStore(listDialog);
  const setDialog = (next: 'columns' | 'group' | 'view' | null) => listDialog.set(next);
  useEffect(() => () => listDialog.set(null), []);
  const address = window.location.pathname + window.location.search;
  const title = known?.kind ?? query.collection.plural;
  const items: MenuItem[] = [
    { text: 'Columns…', run: () => setDialog('columns') },
    { text: 'Group by…', run: () => setDialog('group') },
    {
      text: 'Dense rows',
      checked: density === 'dense',
      run: () => choose((now) => ({ density: now.density === 'dense' ? 'usual' : 'dense' })),
    },
    { text: 'Keep this view…', apart: true, run: () => setDialog('view') },
    {
      text: isFavourite(address) ? 'Remove from favourites' : 'Add to favourites',
      run: () => toggleFavourite({ name: title, to: address }),
    },
    ...(known === undefined
      ? []
      : [
          {
            text: 'Who may delete these…',
            run: () => go(href(['who'], { resource: fullName(known), ns: query.namespaces[0] ?? '' })),
          },
        ]),
    { text: 'Copy the link', run: () => copy(window.location.href, 'The link') },
    { text: 'Copy as kubectl', apart: true, run: () => copy(kubectlOfList(query), 'The command') },
    { text: 'Copy as curl', run: () => copy(curlOf({ path: rawPath(query) }), 'The command') },
    { text: 'Export CSV', apart: true, run: () => exportCsv(props) },
    { text: 'Export JSON', run: () => void exportObjects(props, 'json') },
    { text: 'Export YAML', run: () => void exportObjects(props, 'yaml') },
  ];
  return (
    <>
      <Menu label="More" icon="more" items={items} />
      {dialog === 'columns' && <ColumnsDialog {...props} onClose={() => setDialog(null)} />}
      {dialog === 'group' && <GroupDialog place={place} onClose={() => setDialog(null)} />}
      {dialog === 'view' && <ViewDialog title={title} address={address} onClose={() => setDialog(null)} />}
    </>
  );
}

export function ColumnsDialog({ page, known, place, onClose }: ToolsProps & { onClose: () => void }) {
  const resource = known === undefined ? '' : `${known.plural}.${known.group}`;
  useStore(choices);
  const choice = columnsFor(resource);
  const [path, setPath] = useState('');
  const [wrong, setWrong] = useState('');
  const isWide = place.params.get('wide') === '1';
  const names = page?.columns.filter((column) => isWide || column.priority === 0).map((column) => column.name) ?? [];
  const toggle = (name: string) => {
    const hidden = choice.hidden.includes(name)
      ? choice.hidden.filter((one) => one !== name)
      : [...choice.hidden, name];
    chooseColumns(resource, { hidden });
  };
  const add = () => {
    const text = path.trim();
    const whole = text.startsWith('.') || text.startsWith('[') ? text : `.${text}`;
    if (text === '') return;
    if (stepsOf(whole) === null) {
      setWrong('This is no path such as .spec.nodeName or .metadata.labels.app');
      return;
    }
    if (!choice.added.includes(whole)) chooseColumns(resource, { added: [...choice.added, whole] });
    setPath('');
    setWrong('');
  };
  return (
    <Dialog title="Columns" onClose={onClose}>
      <ul class="checks-of">
        {names.map((name) => (
          <li key={name}>
            <label>
              <input type="checkbox" checked={!choice.hidden.includes(name)} onChange={() => toggle(name)} />{' '}
              {visible(name)}
            </label>
          </li>
        ))}
        {choice.added.map((one) => (
          <li key={one}>
            <label>
              <input
                type="checkbox"
                checked
                onChange={() => chooseColumns(resource, { added: choice.added.filter((other) => other !== one) })}
              />{' '}
              <code>{visible(one)}</code>
            </label>
          </li>
        ))}
      </ul>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          add();
        }}
      >
        <label class="stacked">
          Any path as a column
          <input
            type="text"
            placeholder=".metadata.labels.app"
            spellcheck={false}
            autocomplete="off"
            value={path}
            onInput={(event) => setPath(event.currentTarget.value)}
          />
          {wrong !== '' && <small role="alert">{wrong}</small>}
        </label>
        <div class="buttons">
          <button type="submit">Add the column</button>
          <button
            type="button"
            class="quiet"
            onClick={() => chooseColumns(resource, { hidden: [], added: [], widths: {} })}
          >
            As they were
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function GroupDialog({ place, onClose }: { place: Place; onClose: () => void }) {
  const [path, setPath] = useState(place.params.get('group') ?? '');
  return (
    <Dialog title="Group by" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const text = path.trim();
          const whole = text === '' || text.startsWith('.') ? text : `.${text}`;
          onClose();
          groupBy(place, whole);
        }}
      >
        <label class="stacked">
          Path of the values that divide the rows
          <input
            type="text"
            autofocus
            placeholder=".spec.nodeName"
            spellcheck={false}
            autocomplete="off"
            value={path}
            onInput={(event) => setPath(event.currentTarget.value)}
          />
          <small>Rows are sorted by it, then as before. An empty path groups nothing.</small>
        </label>
        <div class="buttons">
          <button type="submit" class="main">
            Group
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function groupBy(place: Place, path: string): void {
  // The order of the rows is another one, so the page is read again.
  window.history.replaceState(
    { ...place.state, snapshot: undefined },
    '',
    withParams(place, { group: path, page: '' }),
  );
  window.dispatchEvent(new PopStateEvent('popstate'));
}

/** Where a view is kept: in the browser, or in a config map of this namespace. */
function ViewDialog({ title, address, onClose }: { title: string; address: string; onClose: () => void }) {
  const [name, setName] = useState(title);
  const [isShared, setShared] = useState(false);
  const [namespace, setNamespace] = useState(() => usualNamespace());
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const keep = async () => {
    const view = { name: name.trim(), to: address };
    if (view.name === '' || busy) return;
    if (!isShared) {
      choose(({ views }) => ({ views: [...views.filter((one) => one.name !== view.name), view] }));
      announce(`The view is kept as ${view.name}`);
      onClose();
      return;
    }
    setBusy(true);
    try {
      const kept = await shareView(session.get().user?.username ?? '', namespace.trim(), view);
      copy(window.location.origin + linkOf(kept), 'The link of the view');
      onClose();
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return (
    <Dialog title="Keep this view" onClose={onClose}>
      {error !== null && <Problem error={error} />}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void keep();
        }}
      >
        <label class="stacked">
          Name
          <input
            type="text"
            autofocus
            maxLength={80}
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <small>
            Namespaces, filters, order and columns of the address. It is on the first page and in the search.
          </small>
        </label>
        <fieldset class="choices-of">
          <legend>Where</legend>
          <label>
            <input type="radio" name="where" checked={!isShared} onChange={() => setShared(false)} /> In this browser
          </label>
          <label>
            <input type="radio" name="where" checked={isShared} onChange={() => setShared(true)} /> In a config map,
            with a link for others
          </label>
        </fieldset>
        {isShared && (
          <label class="stacked">
            Namespace
            <input
              type="text"
              spellcheck={false}
              autocomplete="off"
              value={namespace}
              onInput={(event) => setNamespace(event.currentTarget.value)}
            />
            <small>Whoever may read config maps there can open the view, and sees what their own rights show.</small>
          </label>
        )}
        <div class="buttons">
          <button type="submit" class="main" disabled={busy || (isShared && namespace.trim() === '')}>
            {isShared ? 'Keep and copy the link' : 'Keep'}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function usualNamespace(): string {
  const { namespaces, recentNamespaces } = choices.get();
  return namespaces[0] ?? recentNamespaces[0] ?? 'default';
}

/** Turns a part of the view on or off. It is in the address, so a link shows it as it is. */
export function toggleView(place: Place, name: string, is: boolean): void {
  show(withParams(place, { [name]: is ? '1' : '0' }));
}
