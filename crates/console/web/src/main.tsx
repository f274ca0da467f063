// The console: selects the page by the URL and renders the frame around it.

import './guard';
import { render } from 'preact';
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { whoAmI } from './api/client';
import { discover, discovery } from './api/discovery';
import { logOut, session } from './api/session';
import { HomePage } from './pages/home';
import { ListPage } from './pages/list/list';
import { LoginDialog, LoginPage } from './pages/login';
import { ObjectPage } from './pages/object/object';
import { ServerPage } from './pages/server';
import { StoragePage } from './pages/storage';
import { go, href, leave, place, type Place } from './state/router';
import { useStore } from './state/store';
import { nextTheme, theme } from './state/theme';
import { announce, Announcements } from './ui/announce';
import { Boundary } from './ui/boundary';
import { Help } from './ui/help';
import { type Key, useKeys } from './ui/keys';
import { LeaveQuestion } from './ui/leave';
import { Palette, resourceHref } from './ui/palette';
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

function Page({ at }: { at: Place }) {
  const [kind, , , , , name] = at.path;
  if (at.malformed) return <p class="problem">This address can&apos;t be read: its escapes stand for no text.</p>;
  switch (kind) {
    case undefined:
      return <HomePage />;
    case 'r':
      return name === undefined ? <ListPage place={at} /> : <ObjectPage place={at} />;
    case 'storage':
      return <StoragePage />;
    case 'server':
      return <ServerPage />;
    default:
      return <p class="problem">There is no such page.</p>;
  }
}

const THEMES = { system: 'as the system', light: 'light', dark: 'dark' };

type Overlay = 'help' | 'palette' | null;

function keysOf(setOverlay: (overlay: Overlay) => void): Key[] {
  const to = (plural: string) => () => {
    const found = discovery.get().resources.find((one) => one.plural === plural && one.preferred);
    if (found !== undefined) go(resourceHref(found));
  };
  return [
    { keys: '?', does: 'these keys', run: () => setOverlay('help') },
    { keys: ':', does: 'go to any resource', run: () => setOverlay('palette') },
    { keys: 'g r', does: 'go to the first page', run: () => go(href([])) },
    { keys: 'g p', does: 'go to pods', run: to('pods') },
    { keys: 'g d', does: 'go to deployments', run: to('deployments') },
    { keys: 'g n', does: 'go to namespaces', run: to('namespaces') },
    { keys: 'g e', does: 'go to events', run: to('events') },
    { keys: 'g c', does: 'go to definitions of custom resources', run: to('customresourcedefinitions') },
    { keys: 'g v', does: 'go to storage versions', run: () => go(href(['storage'])) },
    { keys: 'g s', does: "go to the server's own load", run: () => go(href(['server'])) },
    { keys: 'T', does: 'dark or light', run: () => announce(`Colours: ${THEMES[nextTheme()]}`) },
  ];
}

function Shell() {
  const at = useStore(place);
  const { user } = useStore(session);
  const shade = useStore(theme);
  const [overlay, setOverlay] = useState<Overlay>(null);
  const [menu, setMenu] = useState(false);
  const close = useCallback(() => setOverlay(null), []);
  const keys = useMemo(() => keysOf(setOverlay), []);
  useKeys(keys);
  useEffect(() => {
    void discover();
    if (session.get().user !== null) return;
    whoAmI(session.get().credentials?.token ?? '')
      .then((found) => session.set({ ...session.get(), user: found }))
      // A page that needs the user reports the failure itself.
      .catch(() => undefined);
  }, []);
  const page = at.path.join('/');
  const isFirst = useRef(true);
  useEffect(() => {
    setMenu(false);
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
  }, [page]);
  return (
    <div class={`shell${menu ? ' menu-open' : ''}`}>
      <a class="skip" href="#main" onClick={() => document.getElementById('main')?.focus()}>
        Skip to the page
      </a>
      <header class="top">
        <button
          type="button"
          class="menu quiet"
          aria-label="Resources"
          aria-expanded={menu}
          onClick={() => setMenu(!menu)}
        >
          ☰
        </button>
        <a class="brand" href={href([])}>
          <img src="/console/assets/icon.svg" alt="" width="22" height="22" /> keelson
        </a>
        <nav aria-label="Console">
          <button type="button" onClick={() => setOverlay('palette')} aria-keyshortcuts=":">
            Go to… <kbd>:</kbd>
          </button>
          <a href={href(['storage'])} aria-current={at.path[0] === 'storage' ? 'page' : undefined}>
            Storage
          </a>
          <a href={href(['server'])} aria-current={at.path[0] === 'server' ? 'page' : undefined}>
            Server
          </a>
        </nav>
        <div class="who">
          <span class="user" title={user?.groups?.join(', ')}>
            {user?.username}
          </span>
          <button type="button" class="quiet" aria-label={`Colours: ${THEMES[shade]}`} onClick={() => void nextTheme()}>
            {shade === 'dark' ? '☾' : shade === 'light' ? '☀' : '◐'}
          </button>
          <button type="button" class="quiet" aria-label="Keys" onClick={() => setOverlay('help')}>
            ?
          </button>
          <button type="button" class="quiet" onClick={() => leave(logOut, true)}>
            Log out
          </button>
        </div>
      </header>
      <Sidebar onGo={() => setMenu(false)} />
      <main id="main" tabIndex={-1}>
        <Boundary place={at}>
          <Page at={at} />
        </Boundary>
      </main>
      <LeaveQuestion />
      {overlay === 'help' && <Help onClose={close} />}
      {overlay === 'palette' && <Palette onClose={close} />}
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

const root = document.getElementById('app');
if (root !== null) render(<App />, root);
