// The text of an editor, the object from which it was made, and the draft that is kept until it is saved.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { session } from '../../api/session';
import type { KubeObject } from '../../api/types';
import { shown } from '../../lib/objects';
import { yamlOf } from '../../lib/text';
import { type Draft, draftOf, dropDraft, keepDraft } from '../../state/drafts';
import { guardPage } from '../../state/router';
import { useStore } from '../../state/store';
import type { Subject } from './object';

export type Mode = Draft['mode'];

/** How long the text rests before its draft is kept, in milliseconds. */
const REST = 250;

export interface Editing {
  /** Null until what writes YAML is there. */
  text: string | null;
  /** Why the object can't be written as YAML; null where it can. */
  failed: unknown;
  base: KubeObject;
  mode: Mode;
  /** Whether the text says something that is not saved. */
  isChanged: boolean;
  /** Whether the text is a draft from before. */
  isDraft: boolean;
  setText: (text: string) => void;
  setMode: (mode: Mode) => void;
  /** Begins with an object, and with a text that says something else where one is given. */
  begin: (base: KubeObject, text?: string) => Promise<void>;
}

interface State {
  text: string | null;
  base: KubeObject;
  /** The text of the base. */
  original: string;
  mode: Mode;
  isDraft: boolean;
}

function keyOf({ resource, of, object }: Subject): string {
  const { group, version, plural } = resource;
  return [group, version, plural, of.namespace, of.name, object.metadata.uid ?? ''].join('/');
}

/** Whether this user is still logged in: no draft is kept of one who has logged out. */
function isOf(user: string): boolean {
  return (session.get().user?.username ?? '') === user;
}

export function useEditing(subject: Subject): Editing {
  const user = useStore(session).user?.username ?? '';
  const key = keyOf(subject);
  const [state, setState] = useState<State>({
    text: null,
    base: shown(subject.object),
    original: '',
    mode: 'replace',
    isDraft: false,
  });
  const now = useRef({ state, user, key });
  now.current = { state, user, key };
  const [failed, setFailed] = useState<unknown>(null);
  const wasChanged = useRef(false);
  const isChanged = state.text !== null && state.text !== state.original;

  const begin = useCallback(async (base: KubeObject, text?: string) => {
    const plain = shown(base);
    const original = await yamlOf(plain);
    dropDraft(now.current.user, now.current.key);
    setState(({ mode }) => ({ text: text ?? original, base: plain, original, mode, isDraft: false }));
  }, []);

  const restore = useCallback(
    async (base: KubeObject) => {
      const draft = draftOf(user, key);
      if (draft === undefined) return begin(base);
      const original = await yamlOf(draft.base);
      setState({ ...draft, original, isDraft: draft.text !== original });
    },
    [user, key, begin],
  );
  useEffect(() => {
    // Text that the user has typed meanwhile takes precedence over the draft.
    if (now.current.state.text === null || now.current.state.text === now.current.state.original) {
      restore(subject.object).catch((error: unknown) => setFailed(error ?? new Error('The object has no text.')));
    }
    // A change of the object itself does not change the text.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [restore]);

  useEffect(() => {
    if (state.text === null) return;
    const keep = () => {
      const { text, base, mode } = state;
      if (text === null || !isOf(user)) return;
      if (text !== state.original) keepDraft(user, key, { text, base, mode });
      else if (wasChanged.current) dropDraft(user, key);
      wasChanged.current = text !== state.original;
    };
    const timer = setTimeout(keep, REST);
    return () => clearTimeout(timer);
  }, [state, user, key]);

  useEffect(() => {
    const isUnsaved = () => now.current.state.text !== null && now.current.state.text !== now.current.state.original;
    const keepNow = () => {
      const { state: last, user: whose, key: of } = now.current;
      if (last.text !== null && isUnsaved() && isOf(whose))
        keepDraft(whose, of, { text: last.text, base: last.base, mode: last.mode });
    };
    const ask = (event: BeforeUnloadEvent) => {
      keepNow();
      if (isUnsaved()) event.preventDefault();
    };
    const release = guardPage(isUnsaved);
    window.addEventListener('beforeunload', ask);
    window.addEventListener('pagehide', keepNow);
    return () => {
      keepNow();
      release();
      window.removeEventListener('beforeunload', ask);
      window.removeEventListener('pagehide', keepNow);
    };
  }, []);

  return {
    text: state.text,
    failed,
    base: state.base,
    mode: state.mode,
    isChanged,
    isDraft: state.isDraft && isChanged,
    setText: (text) => setState((before) => ({ ...before, text })),
    setMode: (mode) => setState((before) => ({ ...before, mode })),
    begin,
  };
}
