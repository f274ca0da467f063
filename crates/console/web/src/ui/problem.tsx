// Shows a failure in plain words, with the server's message and a remedy.

import type { ComponentChildren } from 'preact';
import { ApiError, told, Unreachable } from '../api/client';
import { visible } from '../lib/visible';
import { readAgain } from '../state/router';

function heading(error: unknown): string {
  if (error instanceof Unreachable) return 'The server does not answer';
  if (!(error instanceof ApiError)) return 'This did not work';
  switch (error.code) {
    case 401:
      return error.isOfAnother ? 'The server of these objects did not take the request' : 'You are not logged in';
    case 403:
      return 'You may not do this';
    case 404:
      return 'This is not there';
    case 409:
      return 'Somebody else changed it';
    case 410:
      return 'This moment is no longer kept';
    case 422:
      return 'The server does not take this';
    case 429:
      return 'The server has too much to do';
    default:
      return error.code >= 500 ? 'The server could not do this' : 'The server refused this';
  }
}

/** Whether the same request may be answered later. */
function isForAWhile(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof ApiError && (error.code === 429 || error.code >= 500));
}

export function Problem(props: { error: unknown; children?: ComponentChildren }) {
  const causes = props.error instanceof ApiError ? (props.error.status?.details?.causes ?? []) : [];
  return (
    <div class="problem" role="alert">
      <h2>{heading(props.error)}</h2>
      <p>{visible(told(props.error))}</p>
      {props.error instanceof ApiError && props.error.isOfAnother && (
        <p>
          You are logged in, and the server knows you. The server behind it that has these objects does not take what
          this one says of you.
        </p>
      )}
      {causes.length > 0 && (
        <ul>
          {causes.map((cause, at) => (
            <li key={at}>
              <code>{visible(cause.field ?? '')}</code> {visible(cause.message ?? '')}
            </li>
          ))}
        </ul>
      )}
      {isForAWhile(props.error) && (
        <button type="button" onClick={readAgain}>
          Try again
        </button>
      )}
      {props.children}
    </div>
  );
}
