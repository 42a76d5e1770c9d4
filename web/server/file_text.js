// Files that the server reads: PDF and DOCX, told by their first bytes, as the server does.

import {postFile} from './api.js';

const kPdfHeader = 1024;  // readers look for "%PDF-" in so many bytes

// Also Word's older format, for which the server knows a way.
export function isForServer(bytes) {
  const begins = (...first) => first.every((byte, at) => bytes[at] === byte);
  if (begins(0x50, 0x4B, 3, 4) || begins(0xD0, 0xCF, 0x11, 0xE0)) return true;
  return String.fromCharCode(...bytes.subarray(0, kPdfHeader)).includes('%PDF-');
}

// {text, pages, warnings}. Throws ApiError with the server's sentence.
export async function readOnServer(file, signal) {
  const {text, pages, warnings} = await postFile('v1/documents/text', file, signal);
  return {text, pages, warnings: warnings || []};
}
