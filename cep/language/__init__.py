"""The rule language: text to syntax trees and back, and problems as text."""
