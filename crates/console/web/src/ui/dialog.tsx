// A dialog. It is the browser's own, which traps the focus, closes with Escape and restores the focus.

import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';
import { Icon } from './icon';

export interface DialogProps {
  title: string;
  wide?: boolean;
  class?: string;
  /** None of a dialog that has to be answered. */
  onClose?: () => void;
  children: ComponentChildren;
}

export function Dialog(props: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const title = useId();
  // Before the next key, which belongs to the dialog.
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={`${props.wide === true ? 'wide' : ''} ${props.class ?? ''}`}
      aria-labelledby={title}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose?.();
      }}
      onClose={() => {
        // Browsers close a dialog at the second Escape, even if the first was prevented. This opens it again.
        if (props.onClose === undefined && element.current?.isConnected === true) element.current.showModal();
      }}
      onClick={(event) => {
        if (event.target === element.current) props.onClose?.();
      }}
    >
      <div class="dialog-body">
        <header>
          <h2 id={title}>{props.title}</h2>
          {props.onClose !== undefined && (
            <button type="button" class="quiet close" aria-label="Close" onClick={props.onClose}>
              <Icon name="cross" />
            </button>
          )}
        </header>
        {props.children}
      </div>
    </dialog>
  );
}
