// The console: selects the page by the URL and renders the frame around it.

import './guard';
import { type ComponentChildren, render } from 'preact';
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { isAborted, told, whoAmI } from './api/client';
import { connection } from './api/connection';
import { discover, discovery, followDiscovery, preferredResource } from './api/discovery';
import { logOut, session, shareSession } from './api/session';
import { bind, type Key } from './lib/keymap';
import { resourceHref } from './lib/links';
import { visible } from './lib/visible';
import { landInNamespace } from './pages/landing';
import { HomePage } from './pages/start/start';
import { ListPage } from './pages/list/list';
import { LoginDialog, LoginPage } from './pages/login';
import { go, href, leave, place, type Place, readAgain } from './state/router';
import { useStore } from './state/store';
import { nextTheme, theme } from './state/theme';
import { announce, Announcements } from './ui/announce';
import { ConnectionBanner } from './ui/banner';
import { Boundary } from './ui/boundary';
import { Help } from './ui/help';
import { Icon } from './ui/icon';
import { useKeys } from './ui/keys';
import { LeaveQuestion } from './ui/leave';
import { Menu } from './ui/menu';
import { NamespaceSwitcher, switcher } from './ui/namespaces';
import { Palette, type PaletteAction } from './ui/palette';
import { Problem } from './ui/problem';
import { Sidebar } from './ui/sidebar';

/** Links inside of the console change the page without loading it anew. */
function followLinks(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const link = event.target instanceof Element ? event.target.closest('a') : null;
  if (link === null || link.origin !== window.location.origin || !link.pathname.startsWith('/console/')) return;
  if (link.target !== '' || link.hasAttribute('download')) return;
  event.preventDefault();
  go(link.pathname + link.search);
}

document.addEventListener('click', followLinks);

/** When the other pages are loaded, in milliseconds after the first. */
const LATER = 1500;

type Pages = typeof import('./pages');

/** The pages that are loaded after the first one, once they are there. */
let pages: Pages | null = null;

async function loadPages(): Promise<Pages> {
  pages ??= await import('./pages');
  return pages;
}

/** A page of another file, which is loaded when it is first needed. */
function Later({ show }: { show: (all: Pages) => ComponentChildren }) {
  const [all, setAll] = useState(pages);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    if (all !== null) return;
    loadPages().then(setAll, setError);
  }, [all]);
  if (error !== null) return <Problem error={error} />;
  return all === null ? <p class="loading">Loading…</p> : <>{show(all)}</>;
}

function Page({ at }: { at: Place }) {
  const [kind, , , , , name] = at.path;
  if (at.malformed) return <p class="problem">This address can&apos;t be read: its escapes stand for no text.</p>;
  switch (kind) {
    case undefined:
      return <HomePage />;
    case 'r':
      return name === undefined ? (
        <ListPage place={at} />
      ) : (
        <Later show={({ ObjectPage }) => <ObjectPage place={at} />} />
      );
    case 'storage':
      return <Later show={({ StoragePage }) => <StoragePage />} />;
    case 'server':
      return <Later show={({ ServerPage }) => <ServerPage />} />;
    case 'keys':
      return <Later show={({ KeysPage }) => <KeysPage />} />;
    case 'apply':
      return <Later show={({ ApplyPage }) => <ApplyPage />} />;
    case 'who':
      return <Later show={({ WhoPage }) => <WhoPage place={at} />} />;
    case 'views':
      return <Later show={({ ViewsPage }) => <ViewsPage place={at} />} />;
    default:
      return <p class="problem">There is no such page.</p>;
  }
}

const THEMES = { system: 'as the system', light: 'light', dark: 'dark' };

type Overlay = 'help' | 'palette' | null;

function toResource(group: string, plural: string) {
  return () => {
    const found = preferredResource(discovery.get().resources, group, plural);
    if (found !== undefined) go(resourceHref(found));
  };
}

function turnTheme(): void {
  announce(`Colours: ${THEMES[nextTheme()]}`);
}

function keysOf(setOverlay: (overlay: Overlay) => void): Key[] {
  return bind('everywhere', {
    '?': () => setOverlay('help'),
    ':': () => setOverlay('palette'),
    N: () => switcher.set(true),
    c: () => go(href(['apply'])),
    'g r': () => go(href([])),
    'g p': toResource('', 'pods'),
    'g d': toResource('apps', 'deployments'),
    'g n': toResource('', 'namespaces'),
    'g o': toResource('', 'nodes'),
    'g e': toResource('', 'events'),
    'g c': toResource('apiextensions.k8s.io', 'customresourcedefinitions'),
    'g v': () => go(href(['storage'])),
    'g s': () => go(href(['server'])),
    'g a': () => go(href(['who'])),
    'g w': () => go(href(['views'])),
    'g k': () => go(href(['keys'])),
    T: turnTheme,
  });
}

const ACTIONS: PaletteAction[] = [
  { text: 'Create or apply from YAML', icon: 'plus', keys: 'c', run: () => go(href(['apply'])) },
  { text: 'Choose namespaces', icon: 'filter', keys: 'N', run: () => switcher.set(true) },
  { text: 'Overview', icon: 'home', run: () => go(href([])) },
  { text: 'Who may…', icon: 'access', keys: 'g a', run: () => go(href(['who'])) },
  { text: 'Views', icon: 'star', keys: 'g w', run: () => go(href(['views'])) },
  { text: 'Server', icon: 'server', run: () => go(href(['server'])) },
  { text: 'Storage versions', icon: 'storage', run: () => go(href(['storage'])) },
  { text: 'All keys', icon: 'keys', run: () => go(href(['keys'])) },
  { text: 'Dark or light', icon: 'half', keys: 'T', run: turnTheme },
  { text: 'Log out', icon: 'out', run: () => leave(logOut, true) },
];

/** Once the server is back, resources and the page are read again. */
function useReturn(): void {
  const { returned } = useStore(connection);
  const before = useRef(returned);
  useEffect(() => {
    if (before.current === returned) return;
    before.current = returned;
    void discover();
    readAgain();
    announce('The server answers again');
  }, [returned]);
}

/** The user of credentials that came from a reload or from another tab. */
function useUser(): void {
  useEffect(() => {
    if (session.get().user !== null) {
      void landInNamespace();
      return;
    }
    whoAmI(session.get().credentials?.token ?? '')
      .then((found) => {
        session.set({ ...session.get(), user: found });
        return landInNamespace();
      })
      // A page that needs the user reports the failure itself.
      .catch(() => undefined);
  }, []);
}

/** Moves to the top of a new page, and to its heading if the focus was lost. */
function useTop(page: string, opened: () => void): void {
  const isFirst = useRef(true);
  useEffect(() => {
    opened();
    if (isFirst.current) {
      isFirst.current = false;
      return;
    }
    document.getElementById('main')?.scrollTo(0, 0);
    // If the focused element was removed with the previous page, the focus moves to the new heading, which a screen
    // reader announces.
    if (document.activeElement === document.body) {
      document.querySelector<HTMLElement>('#main h1')?.focus({ preventScroll: true });
    }
    // Only another page is a reason to move.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [page]);
}

function UserMenu({ onKeys }: { onKeys: () => void }) {
  const { user } = useStore(session);
  const shade = useStore(theme);
  return (
    <div class="who">
      <span class="user" title={user?.groups?.join(', ')}>
        {user?.username}
      </span>
      <Menu
        label="User and settings"
        icon="user"
        items={[
          { text: `Colours: ${THEMES[shade]}`, run: turnTheme },
          { text: 'Keys of this page', run: onKeys },
          { text: 'Log out', apart: true, run: () => leave(logOut, true) },
        ]}
      />
    </div>
  );
}

function Shell() {
  const at = useStore(place);
  const [overlay, setOverlay] = useState<Overlay>(null);
  const [menu, setMenu] = useState(false);
  const close = useCallback(() => setOverlay(null), []);
  const keys = useMemo(() => keysOf(setOverlay), []);
  useKeys(keys);
  useUser();
  useReturn();
  useEffect(() => {
    const abort = new AbortController();
    void followDiscovery(abort.signal);
    return () => abort.abort();
  }, []);
  useTop(at.path.join('/'), () => setMenu(false));
  return (
    <div class={`shell${menu ? ' menu-open' : ''}`}>
      <a class="skip" href="#main" onClick={() => document.getElementById('main')?.focus()}>
        Skip to the page
      </a>
      <header class="top">
        <button
          type="button"
          class="menu quiet"
          aria-label={menu ? 'Close the menu' : 'Open the menu'}
          aria-expanded={menu}
          onClick={() => setMenu(!menu)}
        >
          <Icon name={menu ? 'cross' : 'menu'} />
        </button>
        <a class="brand" href={href([])} title={`The cluster at ${window.location.host}`}>
          <img src="/console/assets/icon.svg" alt="" width="22" height="22" />
          <span>
            keelson <small>{window.location.host}</small>
          </span>
        </a>
        <NamespaceSwitcher />
        <button
          type="button"
          class="search-button"
          aria-label="Search or go to"
          onClick={() => setOverlay('palette')}
          aria-keyshortcuts=":"
        >
          <Icon name="search" />
          <span>Search or go to…</span> <kbd>:</kbd>
        </button>
        <a class="button create" href={href(['apply'])} title="Create or apply from YAML ( c )">
          <Icon name="plus" />
          <span>Create</span>
        </a>
        <UserMenu onKeys={() => setOverlay('help')} />
      </header>
      <Sidebar onGo={() => setMenu(false)} />
      {menu && <div class="veil" onClick={() => setMenu(false)} />}
      <main id="main" tabIndex={-1}>
        <ConnectionBanner />
        <Boundary place={at}>
          <Page at={at} />
        </Boundary>
      </main>
      <LeaveQuestion />
      {overlay === 'help' && <Help onClose={close} />}
      {overlay === 'palette' && <Palette actions={ACTIONS} onClose={close} />}
    </div>
  );
}

function App() {
  const { credentials, ended, user, visit } = useStore(session);
  return (
    <>
      {credentials === null && ended === null ? <LoginPage /> : <Shell key={visit} />}
      {ended !== null && <LoginDialog why={ended} username={user?.username ?? ''} />}
      <Announcements />
    </>
  );
}

// A failure that no page shows is announced, so that nothing waits for it in silence.
window.addEventListener('unhandledrejection', ({ reason }: PromiseRejectionEvent) => {
  if (!isAborted(reason)) announce(visible(told(reason)), 'failed');
});

const root = document.getElementById('app');
// The other pages are loaded after the rows of the first one, and before they are needed.
setTimeout(() => void loadPages().catch(() => undefined), LATER);

// A new tab takes the session of another one before it asks for a token.
void shareSession().then(() => {
  if (root !== null) render(<App />, root);
});
